"""redis-py with the durable server: `write PORT` stores, `check PORT` finds it all after a kill."""

import sys
import threading

import redis

FUNCTIONS = """#!lua name=clients
redis.register_function('add', function(keys, args) return redis.call('INCRBY', keys[1], args[1]) end)"""


def write(r, port):
    assert r.set("py:text", "grüße") and r.set("py:bytes", bytes(range(256)) * 40)
    assert r.set("py:short", "gone", px=1) and r.set("py:long", "stays", ex=100_000)
    assert r.hset("py:hash", mapping={f"f{i}": i for i in range(500)}) == 500
    assert r.rpush("py:list", *range(300)) == 300
    assert r.sadd("py:set", *[f"m{i}" for i in range(200)]) == 200
    assert r.zadd("py:sorted", {f"m{i}": i / 2 for i in range(200)}) == 200
    for i in range(50):
        r.xadd("py:stream", {"n": i}, id=f"{i + 1}-0")
    r.xgroup_create("py:stream", "group", id="0")
    assert len(r.xreadgroup("group", "one", {"py:stream": ">"}, count=10)[0][1]) == 10
    assert r.xack("py:stream", "group", "1-0", "2-0") == 2
    with r.pipeline(transaction=False) as p:
        for i in range(1_000):
            p.set(f"py:many:{i}", "x" * (i % 100))
        assert all(p.execute())
    r.set("py:balance", 100)

    def spend(p):
        left = int(p.get("py:balance")) - 30
        p.multi()
        p.set("py:balance", left)
        p.incr("py:spent", 30)

    assert r.transaction(spend, "py:balance") == [True, 30]
    script = r.register_script("redis.call('SET', KEYS[1], ARGV[1]) return redis.call('STRLEN', KEYS[1])")
    assert script(keys=["py:script"], args=["seven.."]) == 7
    assert r.function_load(FUNCTIONS, replace=True) in ("clients", b"clients")
    assert r.fcall("add", 1, "py:function", 5) == 5
    assert r.setbit("py:bits", 77, 1) == 0 and r.pfadd("py:log", "a", "b", "c") == 1
    assert r.geoadd("py:geo", (13.36, 38.11, "Palermo")) == 1
    heard = r.pubsub(ignore_subscribe_messages=True)
    heard.subscribe("py:news")
    heard.get_message(timeout=60)
    blocked = []
    waiter = threading.Thread(target=lambda: blocked.append(connect(port).blpop("py:queue", timeout=60)))
    waiter.start()
    assert r.rpush("py:queue", "job") == 1 and r.publish("py:news", "hello") == 1
    assert heard.get_message(timeout=60)["data"] == b"hello"
    waiter.join()
    assert blocked == [(b"py:queue", b"job")]
    other = redis.Redis(port=port, protocol=3, socket_timeout=60)
    assert other.get("py:script") == b"seven.." and other.hgetall("py:hash")[b"f7"] == b"7"
    assert other.set("py:script", "eight...")
    if r.info("mangrove"):
        assert r.waitaof(1, 0, 60_000)[0] == 1


def check(r):
    assert r.get("py:text").decode() == "grüße" and r.get("py:bytes") == bytes(range(256)) * 40
    assert r.get("py:short") is None and 90_000 < r.ttl("py:long") <= 100_000
    assert r.hgetall("py:hash") == {f"f{i}".encode(): str(i).encode() for i in range(500)}
    assert r.lrange("py:list", 0, -1) == [str(i).encode() for i in range(300)]
    assert r.smembers("py:set") == {f"m{i}".encode() for i in range(200)}
    scores = r.zrange("py:sorted", 0, -1, withscores=True)
    assert [(bytes(member), float(score)) for member, score in scores] == [(f"m{i}".encode(), i / 2) for i in range(200)]
    assert [entry[1][b"n"] for entry in r.xrange("py:stream")] == [str(i).encode() for i in range(50)]
    assert r.xpending("py:stream", "group")["pending"] == 8
    assert sum(len(r.get(key)) for key in r.scan_iter("py:many:*", count=100)) == sum(i % 100 for i in range(1_000))
    assert (int(r.get("py:balance")), int(r.get("py:spent"))) == (70, 30)
    assert r.get("py:script") == b"eight..." and r.fcall("add", 1, "py:function", 5) == 10
    assert r.getbit("py:bits", 77) == 1 and r.pfcount("py:log") == 3
    assert r.geopos("py:geo", "Palermo")[0] is not None and r.llen("py:queue") == 0


def connect(port):
    return redis.Redis(port=port, socket_timeout=60)


if sys.argv[1] == "write":
    write(connect(int(sys.argv[2])), int(sys.argv[2]))
else:
    check(connect(int(sys.argv[2])))
