//! Runs the bodies of the fuzz targets over random bytes. A fuzzer finds more, but takes longer than a
//! test run. `BALDE_SEED` repeats a run.

mod fuzz_bodies;

use fastrand::Rng;

use fuzz_bodies::body;

const ROUNDS: usize = 3_000;

const TARGETS: [&str; 5] = ["identity", "keys", "fields", "options", "replies"];

/// Fragments that random bytes would hardly ever contain.
const WORDS: [&str; 48] = [
    "\n",
    "\n",
    "\0",
    "\u{1}",
    "\u{2}",
    ", ",
    ",",
    ";",
    "=",
    "\"",
    "\\",
    " ",
    "\t",
    "for=",
    "For=\"",
    "unknown",
    "_x",
    "203.0.113.7",
    "10.0.0.1",
    "[2001:db8::1]:80",
    "::ffff:10.0.0.1",
    "fd00::1",
    ":65536",
    "\"a\"",
    ";r=1",
    ";t=-5",
    ";q=999999999999999",
    ";w=1.5",
    "1800000030",
    "99999999999999999999",
    "Fri, 15 Jan 2027 08:00:10 GMT",
    "[limits.a]\n",
    "limit = \"10/s burst 20\"\n",
    "limit = ",
    "limit = \"1/x\"\n",
    "strategy = \"fixed_window\"\n",
    "window = \"1 min\"\n",
    "rate = 1e9\n",
    "burst = 0x10\n",
    "storage = \"redis\"\n",
    "[identity]\ntrusted_proxies = [\"10.0.0.0/8\", \"x\"]\n",
    "[headers]\n",
    "password = '''\n",
    "\"\"\"",
    "é",
    "\r\n",
    "{",
    "]",
];

#[test]
fn bodies_of_the_fuzz_targets_hold_for_random_bytes() {
    let seed = std::env::var("BALDE_SEED").ok();
    let seed = seed.map_or_else(|| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("BALDE_SEED={seed}");
    let mut random = Rng::with_seed(seed);
    for _ in 0..ROUNDS {
        let data = bytes(&mut random);
        for target in TARGETS {
            println!("{target}: {:?}", data.escape_ascii().to_string());
            body(target)(&data);
        }
    }
}

#[test]
fn every_body_has_its_target_and_its_corpus() {
    let fuzz = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    for name in TARGETS {
        let body = body(name);
        assert!(
            fuzz.join(format!("fuzz_targets/{name}.rs")).is_file(),
            "{name}"
        );
        let corpus = std::fs::read_dir(fuzz.join("seeds").join(name)).unwrap();
        let mut seeds = 0;
        for seed in corpus {
            body(&std::fs::read(seed.unwrap().path()).unwrap());
            seeds += 1;
        }
        assert!(seeds > 0, "{name} has no seeds");
    }
}

fn bytes(random: &mut Rng) -> Vec<u8> {
    let mut data = Vec::new();
    for _ in 0..random.usize(0..24) {
        match random.u8(..4) {
            0 => data.push(random.u8(..)),
            1 => data.extend(std::iter::repeat_n(
                random.u8(b' '..=b'~'),
                random.usize(..200),
            )),
            _ => data.extend_from_slice(WORDS[random.usize(..WORDS.len())].as_bytes()),
        }
    }
    data
}
