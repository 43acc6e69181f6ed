// redis-cell's command, through ioredis: node throttle.cjs redis://127.0.0.1:6380 alice
const Redis = require("ioredis");

async function main([url, key]) {
  const redis = new Redis(url, { commandTimeout: 10_000, maxRetriesPerRequest: 1 });
  // A burst of 1 beyond the first request, and 2 requests in 60 seconds; all three in one pipeline.
  const pipeline = redis.pipeline();
  for (let i = 0; i < 3; i++) pipeline.call("CL.THROTTLE", key, 1, 2, 60);
  for (const [error, answer] of await pipeline.exec()) {
    if (error) throw error;
    const [refused, limit, remaining, retryAfter] = answer;
    console.log(refused ? `refused, retry in ${retryAfter} s` : `allowed, ${remaining} of ${limit} left`);
  }
  redis.disconnect();
}

main(process.argv.slice(2));
