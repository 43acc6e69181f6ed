// Asks a balde service before doing work: node check.mjs http://127.0.0.1:8085 per_user alice

/** The service's decision, or null if it does not answer in time: then the caller has to choose. */
export async function check(service, limit, key, { tokens = 1, timeout = 200, token } = {}) {
  const headers = { "Content-Type": "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  const body = JSON.stringify({ limit, key, tokens });
  const signal = AbortSignal.timeout(timeout);
  let answer;
  try {
    answer = await fetch(`${service}/v1/check`, { method: "POST", headers, body, signal });
    if (answer.ok) return await answer.json();
  } catch {
    return null;
  }
  if (answer.status === 503) return null; // Overloaded, or its Redis is unavailable.
  throw new Error(`${answer.status}: ${await answer.text()}`); // A mistake of this program.
}

if (process.argv[1]?.endsWith("check.mjs")) {
  const [service, limit, key] = process.argv.slice(2);
  for (let i = 0; i < 3; i++) {
    const decision = await check(service, limit, key, { timeout: 10_000 });
    if (decision === null) console.log("no answer: allowed"); // Fail open.
    else if (decision.allowed) console.log(`allowed, ${decision.remaining} left`);
    else console.log(`refused, retry in ${(decision.retry_after_us / 1e6).toFixed(0)} s`);
  }
}
