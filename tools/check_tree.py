#!/usr/bin/python3
"""check_tree.py [ROOT]: the rules of the house that a compiler does not know, over the whole tree (standard library only).

Layers (who may include whom), rooms of external headers, file and function budgets, headers that compile alone,
explicit file lists, one README per layer, forbidden names and calls. Prints every breach as path:line: text; exit 1
if there is one.
"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

# DESIGN 3: a layer includes only what its row says. "gguf/blocks.h" = that header only.
LAYERS = {
    "base": [],
    "gguf": ["base"],
    "kern": ["base", "gguf/blocks.h", "gguf/quant_tables.h"],
    "text": ["base", "gguf"],
    "model": ["base", "gguf", "kern"],
    "kv": ["base", "kern/kv_layout.h", "model/shape.h"],
    "engine": ["base", "gguf", "kern", "text", "model", "kv"],
    "wire": ["base"],
    "worker": ["engine", "text", "wire", "base"],
    "serve": ["wire", "base"],
    "cmd": ["base", "gguf", "kern", "text", "model", "kv", "engine", "wire", "worker", "serve"],
}
# External headers and the only files that may include them (regular expressions on the path below src/).
ROOMS = {
    r"openssl/evp\.h": r"base/hash\.c",
    r"openssl/.*": r"serve/.*",
    r"xxhash\.h": r"base/hash\.c",
    r"pcre2\.h|utf8proc\.h": r"text/.*",
    r"setjmp\.h": r"text/jinja.*",
    r"zstd\.h": r"kv/.*",
    r"sqlite3\.h": r"kv/.*|serve/store\.c",
    r"event2/.*|http_parser\.h": r"serve/.*",
    r"malloc\.h": r"worker/sandbox\.c",
    r"seccomp\.h|linux/landlock\.h": r"worker/.*",
    r"curl/.*": r"cmd/pull\.c",
    r"histedit\.h|editline/.*": r"cmd/chat\.c",
    r"immintrin\.h|cpuid\.h": r"kern/.*",
    r"arm_neon\.h": r"kern/.*",
}
# The C library and the kernel, for everybody.
PLAIN = re.compile(
    r"(assert|ctype|errno|fcntl|fenv|float|inttypes|limits|locale|math|poll|pthread|sched|signal|spawn|stdalign|"
    r"stdarg|stdatomic|stdbool|stddef|stdint|stdio|stdlib|string|strings|time|unistd|dirent|getopt|netdb|termios|"
    r"libgen|semaphore)\.h|sys/[a-z_]+\.h|arpa/inet\.h|netinet/[a-z]+\.h|linux/(futex|memfd)\.h")
MAX_FILE, MAX_FUNCTION, MAX_KERNEL_FUNCTION = 1000, 80, 120
BAD_NAMES = re.compile(r"(utils?|common|misc|helpers?)(\..*)?")
ALLOC = re.compile(r"(?<![\w.>])(malloc|calloc|realloc|free|strdup|strndup|asprintf|aligned_alloc|posix_memalign)\s*\(")
OUTSIDE = re.compile(r"(?<![\w.>])(printf|puts|putchar|vprintf|exit|_exit|abort|getenv|secure_getenv|setenv)\s*\(|fprintf\s*\(\s*std(err|out)")

breaches = []


def breach(path, line, text):
    breaches.append(f"{path}:{line}: {text}")


def strip_comments(text):
    """Comments and string literals become blanks of the same shape, so that line numbers hold."""
    def blank(m):
        return re.sub(r"[^\n]", " ", m.group(0))
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.S)


def check_includes(rel, layer, text):
    for n, line in enumerate(text.split("\n"), 1):
        m = re.match(r'\s*#\s*include\s+(["<])([^">]+)[">]', line)
        if not m:
            continue
        kind, name = m.groups()
        if kind == '"':
            top = name.split("/")[0]
            if "/" not in name:
                breach(rel, n, f'include "{name}" by its path below src/')
            elif top != layer and top not in LAYERS[layer] and name not in LAYERS[layer]:
                breach(rel, n, f'layer {layer}/ may not include "{name}"')
            continue
        if name == "hearth.h":
            if not re.fullmatch(r"src/(engine/api.*|cmd/.*)", str(rel)):
                breach(rel, n, "only engine/api and cmd/ include the public header")
            continue
        room = next((r for h, r in ROOMS.items() if re.fullmatch(h, name)), None)
        if room is None:
            if not PLAIN.fullmatch(name):
                breach(rel, n, f"external header <{name}> has no room (tools/check_tree.py, ROOMS)")
        elif not re.fullmatch(room, str(rel.relative_to("src"))):
            breach(rel, n, f"external header <{name}> belongs to {room}")


def check_budgets(rel, text, kernel):
    lines = text.split("\n")
    if len(lines) > MAX_FILE:
        breach(rel, len(lines), f"{len(lines)} lines, budget {MAX_FILE}: split by subject")
    limit = MAX_KERNEL_FUNCTION if kernel else MAX_FUNCTION
    start = None
    for n, line in enumerate(lines, 1):
        if line == "{":
            start = n
        elif line.startswith("}") and start is not None:
            if n - start + 1 > limit:
                breach(rel, start, f"function of {n - start + 1} lines, budget {limit}")
            start = None


def check_calls(rel, layer, text):
    code = strip_comments(text)
    for n, line in enumerate(code.split("\n"), 1):
        m = ALLOC.search(line)
        if m and str(rel) != "src/base/mem.c":
            breach(rel, n, f"{m.group(1)}() outside base/mem.c")
        m = OUTSIDE.search(line)
        allowed = layer == "cmd" or (m and m.group(1) == "abort" and layer in ("base", "engine"))
        if m and not allowed:
            breach(rel, n, f"{m.group(0).strip()} below cmd/")
        if layer == "kern" and re.match(r"\s*#\s*(if|ifdef|elif).*__(AVX|SSE|FMA|AMX)", line):
            breach(rel, n, "instruction sets are chosen by the table, not by the preprocessor")


def check_lists(root):
    for layer in LAYERS:
        folder = root / "src" / layer
        meson = (folder / "meson.build").read_text() if (folder / "meson.build").exists() else ""
        for c in sorted(folder.rglob("*.c")):
            if f"'{c.relative_to(folder)}'" not in meson:
                breach(c.relative_to(root), 1, f"not in the file list of src/{layer}/meson.build")
        if not (folder / "README.md").exists():
            breach(f"src/{layer}", 0, "has no README.md")
        if re.search(r"run_command\(.*(find|ls|glob)", meson):
            breach(f"src/{layer}/meson.build", 1, "file lists are explicit")


def check_makefile(root):
    n = len([x for x in (root / "Makefile").read_text().split("\n") if x.strip()])
    if n > 40:
        breach("Makefile", n, "the door has more than 40 lines")


def compiles_alone(root, header):
    cmd = [os.environ.get("CC", "cc"), "-std=gnu11", "-D_GNU_SOURCE", "-Isrc", "-Iinclude", "-fsyntax-only", "-Wall", "-Wextra",
           "-Wno-unused-parameter", "-Werror", "-x", "c", "-include", str(header), "/dev/null"]
    if "kern/x86" in str(header):
        cmd[1:1] = ["-mavx2", "-mfma", "-mf16c"]
        if "avx512" in header.name or "amx" in header.name:
            cmd[1:1] = ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni", "-mavx512vbmi", "-mgfni"]
    if "kern/arm" in str(header):
        cross = shutil.which("aarch64-linux-gnu-gcc")
        if not cross:
            return header, 0, ""
        cmd[0] = cross
        cmd[1:1] = ["-march=armv8.2-a+dotprod+i8mm"]
    run = subprocess.run(cmd, cwd=root, capture_output=True, text=True, check=False)
    return header, run.returncode, run.stderr


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    headers = []
    for path in sorted(p for d in ("src", "include", "tests", "examples") for p in (root / d).rglob("*.[ch]")):
        rel = path.relative_to(root)
        text = path.read_text(encoding="utf-8")
        in_src = rel.parts[0] == "src"
        check_budgets(rel, text, in_src and rel.parts[1] == "kern")
        if BAD_NAMES.fullmatch(path.name):
            breach(rel, 1, "a file is named after its subject")
        if in_src:
            if rel.parts[1] not in LAYERS:
                breach(rel, 1, "is in no layer")
                continue
            check_includes(rel, rel.parts[1], text)
            check_calls(rel, rel.parts[1], text)
        if path.suffix == ".h" and rel.parts[0] in ("src", "include"):
            headers.append(rel)
    check_lists(root)
    check_makefile(root)
    with concurrent.futures.ThreadPoolExecutor(2) as team:
        for header, rc, stderr in team.map(lambda h: compiles_alone(root, h), headers):
            if rc:
                breach(header, 1, "does not compile alone: " + stderr.strip().split("\n")[0])
    for b in breaches:
        print(b)
    print(f"check_tree: {len(headers)} headers, {len(breaches)} breaches")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
