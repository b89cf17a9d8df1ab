"""A real S3 server: OpenStack Swift with its S3 API, in one process, from Debian's python3-swift.

usage: swift_server.py DIRECTORY PORT

Objects are on disk under DIRECTORY. The proxy, which checks signatures, is at 127.0.0.1:PORT; the account,
container and object servers have the three ports after it. Says "ready" once it serves. The key is
test:tester, its secret is testing; test:reader, whose secret is reading, may do what the other one lets it.
"""
from __future__ import annotations

import os
import sys
from typing import Any, Callable

import eventlet
from eventlet import wsgi
from swift.common import utils
from swift.common.ring import RingBuilder
from swift.common.storage_policy import reload_storage_policies
from swift.common.wsgi import loadapp

SERVERS = ("account", "container", "object")

_SWIFT = """[swift-hash]
swift_hash_path_suffix = millrace
[storage-policy:0]
name = one
default = yes
"""
_BACKEND = """[DEFAULT]
swift_dir = {etc}
devices = {directory}/srv
mount_check = false
disable_fallocate = true
log_level = ERROR
[pipeline:main]
pipeline = {name}-server
[app:{name}-server]
use = egg:swift#{name}
"""
_PROXY = """[DEFAULT]
swift_dir = {etc}
log_level = ERROR
[pipeline:main]
pipeline = catch_errors cache s3api tempauth container_quotas slo proxy-server
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:cache]
paste.filter_factory = swift_server:cache_factory
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
user_test_reader = reading
[filter:container_quotas]
use = egg:swift#container_quotas
[filter:slo]
use = egg:swift#slo
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
"""


class Cache:
    """What the proxy asks of memcached, without that server."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def get(self, key: str, *_args: Any, **_options: Any) -> Any:
        return self._values.get(key)

    def set(self, key: str, value: Any, *_args: Any, **_options: Any) -> None:
        self._values[key] = value

    def delete(self, key: str, *_args: Any, **_options: Any) -> None:
        self._values.pop(key, None)


def cache_factory(_global: dict[str, str], **_local: str) -> Callable[..., Any]:
    """The filter that gives the cache to all after it."""
    cache = Cache()

    def make(app: Callable[..., Any]) -> Callable[..., Any]:
        def call(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
            environ["swift.cache"] = cache
            return app(environ, start_response)

        return call

    return make


def write(path: str, text: str) -> None:
    """Makes a file."""
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)


def make_ring(etc: str, name: str, port: int) -> None:
    """One copy of everything, on one device."""
    builder = RingBuilder(1, 1, 0)
    builder.add_dev(
        {"region": 1, "zone": 1, "ip": "127.0.0.1", "port": port, "device": "disk", "weight": 1.0}
    )
    builder.rebalance()
    builder.get_ring().save(os.path.join(etc, f"{name}.ring.gz"))


def main(directory: str, port: int) -> None:
    """Serves until it is killed."""
    etc = os.path.join(directory, "etc")
    os.makedirs(etc)
    os.makedirs(os.path.join(directory, "srv", "disk"))
    write(os.path.join(etc, "swift.conf"), _SWIFT)
    utils.SWIFT_CONF_FILE = os.path.join(etc, "swift.conf")
    reload_storage_policies()
    write(os.path.join(etc, "proxy.conf"), _PROXY.format(etc=etc))
    for i, name in enumerate(SERVERS):
        make_ring(etc, name, port + 1 + i)
        write(os.path.join(etc, f"{name}.conf"), _BACKEND.format(etc=etc, directory=directory, name=name))
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        for i, name in enumerate(("proxy",) + SERVERS):
            app = loadapp(os.path.join(etc, f"{name}.conf"))
            listener = eventlet.listen(("127.0.0.1", port + i))
            eventlet.spawn(wsgi.server, listener, app, log=nowhere, log_output=False)
        print("ready", flush=True)
        while True:
            eventlet.sleep(3600)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
