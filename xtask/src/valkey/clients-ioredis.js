// ioredis with the durable server: `write PORT` stores, `check PORT` finds it all after a kill.
const assert = require("node:assert/strict");
const Redis = require("ioredis");

const range = (count) => [...Array(count).keys()];

async function write(redis, port) {
  assert.equal(await redis.set("js:text", "grüße"), "OK");
  assert.equal(await redis.set("js:bytes", Buffer.from(range(256))), "OK");
  assert.equal(await redis.set("js:long", "stays", "EX", 100000), "OK");
  assert.equal(await redis.hset("js:hash", Object.fromEntries(range(500).map((i) => [`f${i}`, i]))), 500);
  assert.equal(await redis.rpush("js:list", ...range(300)), 300);
  assert.equal(await redis.sadd("js:set", ...range(200)), 200);
  assert.equal(await redis.zadd("js:sorted", ...range(200).flatMap((i) => [i / 2, `m${i}`])), 200);
  for (const i of range(50)) await redis.xadd("js:stream", `${i + 1}-0`, "n", i);
  // Without waiting for each other: ioredis sends them as one pipeline.
  await Promise.all(range(1000).map((i) => redis.set(`js:many:${i}`, "x".repeat(i % 100))));
  const piped = await redis.pipeline(range(100).map((i) => ["incrby", "js:sum", i])).exec();
  assert.deepEqual(piped[99], [null, 4950]);
  const done = await redis.multi().set("js:one", 1).incr("js:one").rename("js:one", "js:two").exec();
  assert.deepEqual(done, [[null, "OK"], [null, 2], [null, "OK"]]);
  redis.defineCommand("setlen", {
    numberOfKeys: 1,
    lua: "redis.call('SET', KEYS[1], ARGV[1]) return redis.call('STRLEN', KEYS[1])",
  });
  assert.equal(await redis.setlen("js:script", "seven.."), 7);
  const listener = new Redis(port);
  const heard = new Promise((resolve) => listener.on("message", (channel, message) => resolve(message)));
  await listener.subscribe("js:news");
  const waiter = new Redis(port);
  const popped = waiter.blpop("js:queue", 60);
  await redis.rpush("js:queue", "job");
  await redis.publish("js:news", "hello");
  assert.deepEqual(await popped, ["js:queue", "job"]);
  assert.equal(await heard, "hello");
  listener.disconnect();
  waiter.disconnect();
}

async function check(redis) {
  assert.equal(await redis.get("js:text"), "grüße");
  assert.deepEqual(await redis.getBuffer("js:bytes"), Buffer.from(range(256)));
  assert.ok((await redis.ttl("js:long")) > 90000);
  assert.deepEqual(await redis.hgetall("js:hash"), Object.fromEntries(range(500).map((i) => [`f${i}`, `${i}`])));
  assert.deepEqual(await redis.lrange("js:list", 0, -1), range(300).map(String));
  assert.equal(await redis.scard("js:set"), 200);
  assert.deepEqual((await redis.zrange("js:sorted", 0, 1, "WITHSCORES")), ["m0", "0", "m1", "0.5"]);
  assert.equal((await redis.xrange("js:stream", "-", "+")).length, 50);
  let found = 0;
  for await (const keys of redis.scanStream({ match: "js:many:*", count: 100 })) found += new Set(keys).size;
  assert.ok(found >= 1000);
  assert.deepEqual(await redis.mget("js:sum", "js:two", "js:script", "js:one"), ["4950", "2", "seven..", null]);
  assert.equal(await redis.llen("js:queue"), 0);
}

const [, , what, port] = process.argv;
const redis = new Redis(Number(port), { maxRetriesPerRequest: 0 });
(what === "write" ? write(redis, Number(port)) : check(redis)).then(
  () => redis.disconnect(),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
