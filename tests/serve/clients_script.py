#!/usr/bin/python3
"""clients_script.py Stub|Ember FOLDER PROGRAM [MODEL]: real clients from npm, in clients/, against a daemon: around
stub_worker.py, or `hearth serve` with the bundled model. Installs them, in these exact versions, into FOLDER if they are not
there. Exit status 77 (skipped, and said so) without node, npm or the registry. Standard library only; node 18 or newer."""
import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

FOLDER = pathlib.Path(sys.argv.pop(2)).resolve()

from serve_rig import GROUP, HERE, MODEL, SERVE, Daemon  # pylint: disable=wrong-import-position

VERSIONS = {"openai": "6.30.1", "ai": "5.0.277", "@ai-sdk/openai-compatible": "1.0.61", "zod": "3.25.76"}
INSTALL_S, RUN_S = 300, 280


def skip(why):
    print(f"SKIPPED: {why}", file=sys.stderr)
    sys.exit(77)


def install():
    """node_modules in FOLDER. Several tests may want it at once: one installs it, the others wait and find it."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        install_alone()


def install_alone():
    done = FOLDER / "installed.json"
    if done.exists() and json.loads(done.read_text()) == VERSIONS:
        return
    if not shutil.which("node") or not shutil.which("npm"):
        skip("node and npm are not in PATH")
    mine = FOLDER / "new"
    shutil.rmtree(mine, ignore_errors=True)
    mine.mkdir()
    (mine / "package.json").write_text('{"private": true}')
    try:
        npm = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock",
                              "--fetch-retries=1", "--fetch-timeout=30000", *(f"{name}@{version}" for name, version in VERSIONS.items())],
                             cwd=mine, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=INSTALL_S)
        if npm.returncode:
            skip(f"npm could not install the clients: {npm.stdout[-2000:]}")
        shutil.rmtree(FOLDER / "node_modules", ignore_errors=True)
        os.rename(mine / "node_modules", FOLDER / "node_modules")
        done.write_text(json.dumps(VERSIONS))
    except subprocess.TimeoutExpired:
        skip("npm found no registry")
    finally:
        shutil.rmtree(mine, ignore_errors=True)


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        argv = [SERVE, "serve", "-m", MODEL[0], "--port", "0", "--threads", "1"] if MODEL else None
        cls.d = Daemon(argv=argv)

    @classmethod
    def tearDownClass(cls):
        rc, _ = cls.d.end()
        assert rc == 0, rc

    def run_client(self, name):
        run = subprocess.run(["node", HERE / "clients" / name, FOLDER, f"http://127.0.0.1:{self.d.port}", GROUP.lower()],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=RUN_S)
        print(run.stdout, file=sys.stderr)
        self.assertEqual(run.returncode, 0, run.stdout)
        self.assertIn("ok ", run.stdout)
        self.assertTrue(self.d.is_at_rest())  # what was cancelled does not run any more

    def test_openai(self):
        self.run_client("openai_client.mjs")

    def test_agent(self):
        self.run_client("agent_client.mjs")


if __name__ == "__main__":
    install()
    unittest.main(argv=[sys.argv[0], "Clients"])
