# The door: meson does the work. BUILD folders are build/<kind>.
MESON_RELEASE = --buildtype=release -Db_ndebug=true
THREADED = $(foreach s,base engine worker serve,--suite $(s))
.PHONY: run test bench bench-peers asan tsan fuzz simulate chaos mutants install format clean build debug

run: build
	@tools/first-run.sh build/release

build:
	@tools/install-deps.sh run
	@tools/build.sh release $(MESON_RELEASE) -Dtests=disabled

debug:
	@tools/install-deps.sh test
	@tools/build.sh debug --buildtype=debugoptimized

test: debug
	@tools/run-tests.sh build/debug

bench: build
	@bench/run.sh build/release

bench-peers: build
	@bench/peers/run.py $(MODEL)

asan:
	@tools/install-deps.sh test
	@tools/build.sh asan --buildtype=debugoptimized -Db_sanitize=address,undefined -Db_lundef=false
	@tools/run-tests.sh build/asan

tsan:
	@tools/install-deps.sh test
	@tools/build.sh tsan --buildtype=debugoptimized -Db_sanitize=thread -Db_lundef=false
	@tools/run-tests.sh build/tsan $(THREADED)

fuzz:
	@tools/install-deps.sh ci && tools/fuzz.sh $(SECONDS_EACH)

simulate: debug
	@build/debug/tests/sim/sim $(addprefix --seed ,$(SEED)) --seconds 80 && HEARTH_ROOT=. build/debug/tests/sim/sim_ember $(addprefix --seed ,$(SEED)) --seconds 60

chaos: debug
	@tests/chaos/chaos_main.py --build build/debug $(foreach w,$(WITHOUT),--without $(w)) $(addprefix --seconds ,$(SECONDS)) $(addprefix --seed ,$(SEED))

mutants:
	@tests/sim/mutants.py

install: build
	meson install -C build/release --no-rebuild

format:
	git ls-files '*.c' '*.h' | xargs clang-format -i

clean:
	rm -rf build
