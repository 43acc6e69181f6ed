//! Certificate and participant are bound in front of DICT: nobody spends another's quota.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use balde::{Clock, ManualClock};
use balde_gateway::Config;
use serde_json::Value;

use crate::byte_log::ByteLog;
use crate::promise::requests;
use crate::running::{Running, TOKEN};
use crate::simulated::{Dict, START_US};
use crate::tls::{Authority, text};

const ONE: &str = "12345678";
const OTHER: &str = "87654321";

struct Fixture {
    authority: Authority,
    log: ByteLog,
    gateway: Running,
}

impl Fixture {
    /// A gateway for two participants. `of_dict` goes into `[dict]`, `of_upstream` into `[[upstream]]`.
    async fn start(authority: Authority, of_upstream: &str, of_dict: &str) -> Self {
        let log = ByteLog::start().await;
        let config = configuration(&authority, &log.address.to_string(), of_upstream, of_dict);
        let clock = ManualClock::at_us(START_US);
        let gateway = Running::start_with(&parse(&config).unwrap(), Clock::manual(&clock)).await;
        Self {
            authority,
            log,
            gateway,
        }
    }

    /// Everything that a participant has spent.
    async fn spent(&self, participant: &str) -> i64 {
        spent(&self.gateway, participant).await
    }
}

async fn spent(gateway: &Running, participant: &str) -> i64 {
    let states = gateway.states(&format!("participant={participant}")).await;
    let policies = states["policies"].as_array().unwrap().clone();
    let number = |one: &Value, name: &str| one[name].as_i64().unwrap();
    let missing = policies.iter();
    missing
        .map(|one| number(one, "capacity") - number(one, "level"))
        .sum()
}

fn parse(text: &str) -> Result<Config, String> {
    let variable = |name: &str| (name == "TOKEN").then(|| TOKEN.to_owned());
    Config::parse(text, "gateway.toml", Path::new(""), variable).map_err(|error| error.to_string())
}

fn configuration(authority: &Authority, dict: &str, of_upstream: &str, of_dict: &str) -> String {
    let (chain, key, _) = authority.issue("server");
    format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\ncertificate = {:?}\nkey = {:?}\nclient_ca = {:?}\n\
         client_auth = \"optional\"\n\
         [[upstream]]\nname = \"dict\"\nurl = \"http://{dict}\"\n{of_upstream}\n\
         [[route]]\npath = \"/\"\nupstream = \"dict\"\n\
         [state]\naddress = \"127.0.0.1:0\"\ntoken_env = \"TOKEN\"\n\
         [dict]\nupstream = \"dict\"\nparticipants = [\"{ONE}\", \"{OTHER}\"]\nrefill = \"profile\"\n\
         category = \"A\"\nreconcile_every = '0 s'\n{of_dict}\n",
        text(&chain),
        text(&key),
        text(&authority.ca()),
    )
}

/// A request of each kind: method, path, participant in header and body.
const OPERATIONS: [(&str, &str, bool, &str); 12] = [
    ("GET", "/entries/a@b.com", true, ""),
    ("GET", "/entries/a@b.com/statistics", true, ""),
    ("GET", "/claims/?Participant=ISPB", false, ""),
    (
        "GET",
        "/claims/?Participant=ISPB&Participant=ISPB",
        true,
        "",
    ),
    ("GET", "/claims/x", true, ""),
    ("GET", "/policies/", true, ""),
    ("GET", "/fraud-markers/?TaxIdNumber=11122233300", true, ""),
    ("GET", "/event-notifications?Participant=ISPB", false, ""),
    (
        "POST",
        "/entries/",
        false,
        "<R><Entry><Account><Participant>ISPB</Participant></Account></Entry></R>",
    ),
    (
        "PUT",
        "/entries/a@b.com",
        false,
        "<R><Account><Participant>ISPB</Participant></Account></R>",
    ),
    (
        "POST",
        "/entries/a@b.com/delete",
        false,
        "<R><Participant>ISPB</Participant></R>",
    ),
    (
        "POST",
        "/claims/x/confirm",
        true,
        "<R><Participant>ISPB</Participant></R>",
    ),
];

async fn ask(
    client: &reqwest::Client,
    gateway: &Running,
    (method, path, has_header, body): (&str, &str, bool, &str),
    participant: &str,
) -> u16 {
    let path = path.replace("ISPB", participant);
    let url = format!("https://127.0.0.1:{}/api/v2{path}", gateway.address.port());
    let mut request = client
        .request(method.parse().unwrap(), url)
        .header("PI-PayerId", "11122233300")
        .header(
            "PI-EndToEndId",
            format!("E{participant}20260101000000000000001"),
        )
        .body(body.replace("ISPB", participant));
    if has_header {
        request = request.header("PI-RequestingParticipant", participant);
    }
    request.send().await.unwrap().status().as_u16()
}

/// What each participant has spent after every operation in the name of the other.
async fn nobody_spends_anothers_quota(fixture: &Fixture, certificates: [&str; 2]) {
    let clients = certificates.map(|name| {
        let identity = fixture.authority.issue(name);
        fixture.authority.client(Some(&identity))
    });
    all_operations(fixture, &clients).await;
}

async fn all_operations(fixture: &Fixture, clients: &[reqwest::Client; 2]) {
    for operation in OPERATIONS {
        for (client, own, other) in [(&clients[0], ONE, OTHER), (&clients[1], OTHER, ONE)] {
            let before = [fixture.spent(own).await, fixture.spent(other).await];
            assert_eq!(
                ask(client, &fixture.gateway, operation, other).await,
                403,
                "{operation:?}"
            );
            let lower = format!("{other} ");
            let status = ask(client, &fixture.gateway, operation, lower.trim()).await;
            assert_eq!(status, 403, "{operation:?}");
            assert!(fixture.log.take().is_empty(), "{operation:?}");
            assert_eq!(
                [fixture.spent(own).await, fixture.spent(other).await],
                before
            );
            assert_eq!(
                ask(client, &fixture.gateway, operation, own).await,
                200,
                "{operation:?}"
            );
            assert_eq!(fixture.log.take().len(), 1, "{operation:?}");
            assert_eq!(fixture.spent(other).await, before[1], "{operation:?}");
        }
    }
    assert!(fixture.spent(ONE).await > 0 && fixture.spent(OTHER).await > 0);
}

#[tokio::test]
async fn the_ispb_in_a_certificate_is_the_only_one_that_its_caller_speaks_for() {
    let fixture = Fixture::start(Authority::new(), "", "").await;
    nobody_spends_anothers_quota(&fixture, [ONE, OTHER]).await;
}

#[tokio::test]
async fn the_file_binds_certificates_to_participants() {
    let authority = Authority::new();
    let identities = [authority.issue("payments"), authority.issue("lookups")];
    let digests = identities
        .each_ref()
        .map(|(_, _, der)| hex::encode(ring::digest::digest(&ring::digest::SHA256, der)));
    let bound = format!(
        "[dict.certificates]\n{ONE} = [\"{}\"]\n{OTHER} = [\"{}\"]\n",
        digests[0], digests[1]
    );
    let clients = identities
        .each_ref()
        .map(|identity| authority.client(Some(identity)));
    let stranger = authority.client(Some(&authority.issue("stranger")));
    let anonymous = authority.client(None);
    let fixture = Fixture::start(authority, "", &bound).await;
    all_operations(&fixture, &clients).await;
    // Without a certificate that the file names, nobody speaks for anybody.
    for client in [stranger, anonymous] {
        for operation in OPERATIONS {
            for participant in [ONE, OTHER] {
                let status = ask(&client, &fixture.gateway, operation, participant).await;
                assert_eq!(status, 403, "{operation:?}");
            }
        }
    }
    assert!(fixture.log.take().is_empty());
}

#[tokio::test]
async fn a_second_participant_in_another_place_is_refused() {
    let fixture = Fixture::start(Authority::new(), "", "").await;
    let identity = fixture.authority.issue(ONE);
    let client = fixture.authority.client(Some(&identity));
    let base = format!(
        "https://127.0.0.1:{}/api/v2",
        fixture.gateway.address.port()
    );
    let body = |ispb: &str| format!("<R><Participant>{ispb}</Participant></R>");
    let delete = format!("{base}/entries/a@b.com/delete");
    let named = "PI-RequestingParticipant";
    let requests = [
        // Header and body.
        (
            client.post(&delete).header(named, ONE).body(body(OTHER)),
            403,
        ),
        (
            client.post(&delete).header(named, OTHER).body(body(ONE)),
            403,
        ),
        // Header and query.
        (
            client
                .get(format!("{base}/claims/?Participant={ONE}"))
                .header(named, OTHER),
            403,
        ),
        (
            client
                .get(format!("{base}/claims/?Participant={OTHER}"))
                .header(named, ONE),
            403,
        ),
        (
            client.get(format!(
                "{base}/claims/?Participant={ONE}&Participant={OTHER}"
            )),
            403,
        ),
        (
            client.get(format!("{base}/claims/?%50articipant={OTHER}")),
            403,
        ),
        (
            client.get(format!(
                "{base}/claims/?Participant={ONE};Participant={OTHER}"
            )),
            403,
        ),
        // Two lines, equal or not.
        (
            client
                .get(format!("{base}/claims/x"))
                .header(named, ONE)
                .header(named, ONE),
            400,
        ),
        (
            client
                .get(format!("{base}/claims/x"))
                .header(named, ONE)
                .header(named, OTHER),
            400,
        ),
        (
            client
                .get(format!("{base}/entries/a@b.com"))
                .header(named, ONE)
                .header("PI-PayerId", "11122233300")
                .header("PI-PayerId", "11122233301"),
            400,
        ),
        // A payer that cannot be counted.
        (
            client
                .get(format!("{base}/entries/a@b.com"))
                .header(named, ONE)
                .header("PI-PayerId", "111.222.333-00"),
            400,
        ),
    ];
    for (request, expected) in requests {
        let request = request.build().unwrap();
        let shown = format!("{request:?}");
        assert_eq!(
            client.execute(request).await.unwrap().status(),
            expected,
            "{shown}"
        );
        assert!(fixture.log.take().is_empty(), "{shown}");
    }
    assert_eq!(
        (fixture.spent(ONE).await, fixture.spent(OTHER).await),
        (0, 0)
    );
}

#[tokio::test]
async fn check_keys_is_paid_by_whom_dict_charges() {
    let check = ("POST", "/keys/check", true, "<R><Keys/></R>");
    // Whom DICT charges is not known: the request is not sent.
    let fixture = Fixture::start(Authority::new(), "", "").await;
    let one = fixture
        .authority
        .client(Some(&fixture.authority.issue(ONE)));
    assert_eq!(ask(&one, &fixture.gateway, check, ONE).await, 403);
    assert!(fixture.log.take().is_empty());
    // The file says it.
    let as_other = format!("check_keys_as = \"{OTHER}\"");
    let fixture = Fixture::start(Authority::new(), "", &as_other).await;
    let one = fixture
        .authority
        .client(Some(&fixture.authority.issue(ONE)));
    let other = fixture
        .authority
        .client(Some(&fixture.authority.issue(OTHER)));
    assert_eq!(ask(&one, &fixture.gateway, check, ONE).await, 403);
    assert_eq!(
        (fixture.spent(ONE).await, fixture.spent(OTHER).await),
        (0, 0)
    );
    assert_eq!(ask(&other, &fixture.gateway, check, OTHER).await, 200);
    assert_eq!(fixture.spent(ONE).await, 0);
    assert!(fixture.spent(OTHER).await > 0);
    // Callers without certificates: the header does not decide.
    let anonymous = fixture.authority.client(None);
    let before = fixture.spent(OTHER).await;
    assert_eq!(ask(&anonymous, &fixture.gateway, check, ONE).await, 200);
    assert_eq!(fixture.spent(ONE).await, 0);
    assert!(fixture.spent(OTHER).await > before);
}

#[tokio::test]
async fn the_gateways_own_certificate_says_whom_dict_charges() {
    let authority = Authority::new();
    let (chain, key, _) = authority.issue(OTHER);
    let own = format!("certificate = {:?}\nkey = {:?}\n", text(&chain), text(&key));
    let config = |of_dict: &str| {
        let text = configuration(&authority, "127.0.0.1:1", &own, of_dict);
        parse(&text.replace("url = \"http://", "url = \"https://"))
    };
    let charged = |config: Config| config.dict.unwrap().charged;
    assert_eq!(charged(config("").unwrap()).as_deref(), Some(OTHER));
    let agreed = format!("check_keys_as = \"{OTHER}\"");
    assert_eq!(charged(config(&agreed).unwrap()).as_deref(), Some(OTHER));
    let wrong = config(&format!("check_keys_as = \"{ONE}\"")).unwrap_err();
    assert!(
        wrong.contains("the upstream's certificate names 87654321"),
        "{wrong}"
    );
    let unknown = config("check_keys_as = \"99999999\"").unwrap_err();
    assert!(
        unknown.contains("must be one of `participants`"),
        "{unknown}"
    );
}

/// Two participants with their own certificates, who also try the other's name, in front of a simulated
/// DICT: DICT refuses nothing, and what the gateway has counted for each is what DICT has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_participants_share_a_gateway_and_not_a_quota() {
    const CALLERS: usize = 8;
    let dict = Arc::new(Dict::start('A').await);
    let category = serde_json::json!({"participant": OTHER, "category": "A"});
    dict.put("participants", &category).await;
    let authority = Authority::new();
    let text = configuration(&authority, &dict.address.to_string(), "", "");
    let config = parse(&text).unwrap();
    let gateway = Arc::new(Running::start_with(&config, Clock::manual(&dict.clock)).await);
    let clients = [ONE, OTHER].map(|name| authority.client(Some(&authority.issue(name))));
    let each = requests() / CALLERS;
    let callers = (0..CALLERS).map(|number| {
        let (dict, gateway, clients) = (dict.clone(), gateway.clone(), clients.clone());
        tokio::spawn(async move {
            let mut random = fastrand::Rng::with_seed(u64::try_from(number).unwrap());
            let (mut forbidden, mut refused) = (0, 0);
            for _ in 0..each {
                if random.u32(..64) == 0 {
                    dict.clock.advance(Duration::from_millis(random.u64(..400)));
                }
                let (caller, named) = (number % 2, random.usize(..2));
                let operation = OPERATIONS[random.usize(..OPERATIONS.len())];
                let status = ask(&clients[caller], &gateway, operation, [ONE, OTHER][named]).await;
                assert_eq!(
                    status == 403 && caller != named,
                    caller != named,
                    "{operation:?}"
                );
                forbidden += usize::from(caller != named);
                refused += usize::from(status == 429);
            }
            (forbidden, refused)
        })
    });
    let (mut forbidden, mut refused) = (0, 0);
    for caller in callers.collect::<Vec<_>>() {
        let found = caller.await.unwrap();
        forbidden += found.0;
        refused += found.1;
    }
    let sent = each * CALLERS;
    println!("{sent} requests, {forbidden} in another's name, {refused} refused by the gateway");
    assert!(forbidden > sent / 4);
    assert!(refused > sent / 20, "buckets ran dry");
    assert_eq!(dict.refusals().await, 0);
    assert_eq!(gateway.dict_refusals(), 0);
    for participant in [ONE, OTHER] {
        let states = gateway.states(&format!("participant={participant}")).await;
        for bucket in states["policies"].as_array().unwrap() {
            let policy = bucket["policy"].as_str().unwrap();
            let own = bucket["level"].as_i64().unwrap();
            let of_dict = dict.level_of(participant, policy, None).await;
            // Only a call in flight may have been counted a moment later here than there.
            let calls = i64::try_from(CALLERS).unwrap();
            assert!(
                own <= of_dict && of_dict - own <= calls,
                "{participant} {policy}: {own} of {of_dict}"
            );
        }
    }
}
