#!/usr/bin/python3
"""Shows that check_tree.py can fail: one deliberate breach of each kind in a small tree, and a clean tree without any."""
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
LAYERS = ["base", "gguf", "kern", "text", "model", "kv", "engine", "wire", "worker", "serve", "cmd"]

# name of the breach: (file, content, what the report must say)
BREACHES = {
    "layer above": ("src/base/a.c", '#include "gguf/reader.h"\n', 'layer base/ may not include "gguf/reader.h"'),
    "kern sees block structs only": ("src/kern/a.c", '#include "gguf/reader.h"\n', "layer kern/ may not include"),
    "kv sees shapes only": ("src/kv/a.c", '#include "model/model.h"\n', "layer kv/ may not include"),
    "serve and engine": ("src/serve/a.c", '#include "engine/engine.h"\n', "layer serve/ may not include"),
    "include without folder": ("src/base/a.c", '#include "mem.h"\n', "include \"mem.h\" by its path"),
    "room of a library": ("src/text/a.c", "#include <openssl/evp.h>\n", "external header <openssl/evp.h> belongs to"),
    "unknown library": ("src/base/a.c", "#include <glib.h>\n", "external header <glib.h> has no room"),
    "malloc": ("src/base/a.c", "void *f(void)\n{\n    return malloc(3);\n}\n", "malloc() outside base/mem.c"),
    "printf": ("src/text/a.c", 'void f(void)\n{\n    printf("x");\n}\n', "printf( below cmd/"),
    "getenv": ("src/engine/a.c", 'char *f(void)\n{\n    return getenv("X");\n}\n', "getenv( below cmd/"),
    "long function": ("src/base/a.c", "void f(void)\n{\n" + "    ;\n" * 90 + "}\n", "function of 92 lines"),
    "long file": ("src/base/a.c", "/* x */\n" * 1001, "1002 lines, budget 1000"),
    "name": ("src/base/utils.c", "\n", "a file is named after its subject"),
    "lonely header": ("src/base/a.h", "size_t f(void);\n", "does not compile alone"),
    "instruction set in a body": ("src/kern/a.c", "#ifdef __AVX2__\n#endif\n", "chosen by the table"),
    "no layer": ("src/extra/a.c", "\n", "is in no layer"),
    "not listed": ("src/base/b.c", "\n", "not in the file list"),
}


def make_tree(root):
    (root / "include").mkdir(parents=True)
    (root / "Makefile").write_text("all:\n")
    for layer in LAYERS:
        folder = root / "src" / layer
        folder.mkdir(parents=True)
        (folder / "README.md").write_text("x\n")
        (folder / "meson.build").write_text("files('a.c', 'utils.c')\n")


def report(root):
    run = subprocess.run([sys.executable, HERE / "check_tree.py", root], capture_output=True, text=True, check=False)
    return run.returncode, run.stdout


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as top:
        clean = pathlib.Path(top) / "clean"
        make_tree(clean)
        rc, out = report(clean)
        if rc != 0:
            failed += 1
            print(f"FAILED: a clean tree is refused: {out}")
        for i, (name, (path, content, want)) in enumerate(BREACHES.items()):
            root = pathlib.Path(top) / str(i)
            make_tree(root)
            (root / path).parent.mkdir(exist_ok=True)
            (root / path).write_text(content)
            rc, out = report(root)
            if rc == 0 or want not in out:
                failed += 1
                print(f"FAILED: {name}: expected '{want}' in: {out}")
    print(f"{len(BREACHES) + 1 - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
