//! What operators do on the pages, in both languages: acknowledge with a name, undo, silence.

use serde_json::{Value, json};
use sqlx::{ConnectOptions as _, Connection as _};

use crate::PAGES;
use crate::driver::{Browser, Options};
use crate::live::{BROKEN, Live};

const ENTER: &str = "\u{e007}";

const ALERT: &str = "document.querySelector('.attention li[data-policy=\"KEYS_CHECK\"]')";
const ROW: &str = "[...document.querySelectorAll('tr[data-policy]')].find(row => row.dataset.policy === 'KEYS_CHECK')";

/// The words of one language.
struct Words {
    language: &'static str,
    acknowledged: &'static str,
    silenced: &'static str,
    was_silenced: &'static str,
    took_back: &'static str,
    silence_ended: &'static str,
    payers: &'static str,
}

const ENGLISH: Words = Words {
    language: "en-US",
    acknowledged: "acknowledged by Ana Silva",
    silenced: "silenced until",
    was_silenced: "12345678 KEYS_CHECK: silenced by Ana Silva until",
    took_back: "KEYS_CHECK: Ana Silva took the acknowledgement back",
    silence_ended: "12345678 KEYS_CHECK: Ana Silva ended the silence",
    payers: "ENTRIES_READ_USER_ANTISCAN\t75\tsingle payers or users",
};

const PORTUGUESE: Words = Words {
    language: "pt-BR",
    acknowledged: "reconhecido por Ana Silva",
    silenced: "silenciado até",
    was_silenced: "12345678 KEYS_CHECK: silenciado por Ana Silva até",
    took_back: "KEYS_CHECK: Ana Silva desfez o reconhecimento",
    silence_ended: "12345678 KEYS_CHECK: Ana Silva encerrou o silêncio",
    payers: "ENTRIES_READ_USER_ANTISCAN\t75\tde cada pagador ou usuário",
};

async fn acknowledge_undo_and_silence(words: &Words) {
    let options = Options {
        language: words.language,
        rebound_host: None,
    };
    let Some(browser) = Browser::start(options).await else {
        return;
    };
    let live = Live::start().await;
    live.set_levels(&[("KEYS_CHECK", 0)]);
    browser.open(&live.url("")).await;
    let has = |root: &str, text: &str| format!("!!{root}?.innerText.includes({})", json!(text));
    let exists = |selector: &str| format!("!!{ALERT}?.querySelector('{selector}')");
    let li = ".attention li[data-policy='KEYS_CHECK']";
    let name = words.language;
    browser.wait_until(&exists(".acknowledge")).await;
    browser.click(&format!("{li} .acknowledge")).await;
    browser
        .wait_until("document.activeElement?.id === 'your-name'")
        .await;
    browser.screenshot(&format!("operator-name-{name}")).await;
    browser.type_keys(&format!("Ana Silva{ENTER}")).await;
    browser.wait_until(&has(ALERT, words.acknowledged)).await;
    browser.wait_until(&has(ROW, words.acknowledged)).await;
    browser
        .screenshot(&format!("operator-acknowledged-{name}"))
        .await;

    // Undone, and acknowledged again without a question.
    browser.click(&format!("{li} .undo")).await;
    browser.wait_until(&exists(".acknowledge")).await;
    let is_gone = format!("!({})", has(ROW, words.acknowledged));
    browser.wait_until(&is_gone).await;
    browser.click(&format!("{li} .acknowledge")).await;
    browser.wait_until(&has(ALERT, words.acknowledged)).await;
    browser.click(&format!("{li} .undo")).await;
    browser.wait_until(&exists(".silence")).await;

    // Silenced: a mark on the row and on the alert, and a button that ends it.
    browser.click(&format!("{li} .silence")).await;
    browser.wait_until(&has(ALERT, words.silenced)).await;
    browser.wait_until(&has(ROW, words.silenced)).await;
    browser
        .screenshot(&format!("operator-silenced-{name}"))
        .await;
    browser.click(&format!("{li} .end")).await;
    let is_gone = format!("!({})", has(ROW, words.silenced));
    browser.wait_until(&is_gone).await;

    // The timeline has it all.
    browser.open(&live.url("#/alerts")).await;
    let timeline = "document.querySelector('ol.events')";
    for part in [
        words.acknowledged,
        words.took_back,
        words.was_silenced,
        words.silence_ended,
    ] {
        browser.wait_until(&has(timeline, part)).await;
    }
    browser
        .screenshot(&format!("operator-timeline-{name}"))
        .await;
    browser.open(&live.url("#/gateway")).await;
    browser
        .wait_until(&has("document.body", words.payers))
        .await;
    browser
        .screenshot(&format!("operator-gateway-{name}"))
        .await;
    no_text_of_the_other_language(&browser, &live).await;
    assert_eq!(browser.console_errors().await, [""; 0]);
}

/// No page shows a text of the other language. Texts of one word may be the same in both.
async fn no_text_of_the_other_language(browser: &Browser, live: &Live) {
    let script = "return import('/dashboard/texts.js').then((texts) => {
        const own = texts.allTexts()[texts.language()];
        const others = Object.entries(texts.allTexts()).filter(([name]) => name !== texts.language());
        const shown = document.body.innerText;
        return others.flatMap(([, words]) => Object.entries(words).flatMap(([key, word]) =>
            word.split(/\\{\\w+\\}/).map((part) => part.trim()).filter((part) => part.length > 9 && /\\s/.test(part) &&
                !Object.values(own).some((text) => text.includes(part)) && shown.includes(part)).map((part) => [key, part])));
    });";
    for page in PAGES {
        browser.open(&live.url(page)).await;
        browser.wait_until("!!document.querySelector('h1')").await;
        let foreign = browser.run(script, &[]).await;
        assert_eq!(foreign, Value::Array(Vec::new()), "{page}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alert_is_acknowledged_by_name_undone_and_silenced_in_english() {
    acknowledge_undo_and_silence(&ENGLISH).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alert_is_acknowledged_by_name_undone_and_silenced_in_portuguese() {
    acknowledge_undo_and_silence(&PORTUGUESE).await;
}

/// A participant whose gateway sends nonsense is stale after eleven minutes: that alert has no bucket,
/// and is acknowledged like any other.
async fn acknowledge_stale_data(language: &'static str, acknowledged: &str, said: &str) {
    let options = Options {
        language,
        rebound_host: None,
    };
    let Some(browser) = Browser::start(options).await else {
        return;
    };
    let live = Live::start().await;
    browser.open(&live.url("")).await;
    browser
        .run("localStorage.setItem('balde-name', 'Ana Silva');", &[])
        .await;
    let li = format!(".attention li[data-policy='stale {BROKEN}']");
    let stale = format!("document.querySelector(\"{li}\")");
    let has = |root: &str, text: &str| format!("!!{root}?.innerText.includes({})", json!(text));
    let button = |selector: &str| format!("!!{stale}?.querySelector('{selector}')");
    browser.wait_until(&button(".acknowledge")).await;
    browser.click(&format!("{li} .acknowledge")).await;
    browser.wait_until(&has(&stale, acknowledged)).await;
    browser.screenshot(&format!("stale-{language}")).await;
    browser.click(&format!("{li} .undo")).await;
    browser.wait_until(&button(".acknowledge")).await;

    // On the page of incidents, too, where the alert says what it is about.
    browser.open(&live.url("#/incidents")).await;
    let card = format!(
        "[...document.querySelectorAll('.incident')].find(card => card.querySelector('.acknowledge, .undo') && card.innerText.includes('{BROKEN}'))"
    );
    browser.wait_until(&has(&card, said)).await;
    // The timeline names the first acknowledgement as well, so the buttons tell what holds.
    let of_card = |selector: &str| format!("{card}?.querySelector('{selector}')");
    for (button, then) in [(".acknowledge", ".undo"), (".undo", ".acknowledge")] {
        browser.wait_until(&format!("!!{}", of_card(button))).await;
        browser
            .run(&format!("{}.click();", of_card(button)), &[])
            .await;
        browser.wait_until(&format!("!!{}", of_card(then))).await;
        browser
            .screenshot(&format!("incidents-{language}-{}", &then[1..]))
            .await;
    }
    assert_eq!(browser.console_errors().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_data_is_acknowledged_in_english() {
    acknowledge_stale_data("en-US", "acknowledged by Ana Silva", "no new data about").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_data_is_acknowledged_in_portuguese() {
    acknowledge_stale_data("pt-BR", "reconhecido por Ana Silva", "sem dados novos de").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_monitor_that_shows_nothing_to_strangers_asks_for_a_token() {
    let options = Options {
        language: "en-US",
        rebound_host: None,
    };
    let Some(browser) = Browser::start(options).await else {
        return;
    };
    let live = Live::with("token_env = \"TOKEN\"\nread = \"authenticated\"", "").await;
    browser.open(&live.url("")).await;
    browser
        .wait_until("!!document.querySelector('#sign-in')")
        .await;
    browser.click("#sign-in").await;
    browser
        .type_keys(&format!("a-token-for-tests{ENTER}"))
        .await;
    browser.wait_until(&format!("!!({ROW})")).await;
    browser.open(&live.url("#/operations")).await;
    let said = "document.body.innerText.includes('Your role: everything')";
    browser.wait_until(said).await;
}

/// Somebody else writes to the database for long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acknowledgement_without_a_database_is_kept_and_the_page_says_so() {
    let options = Options {
        language: "pt-BR",
        rebound_host: None,
    };
    let Some(browser) = Browser::start(options).await else {
        return;
    };
    let live = Live::start().await;
    live.set_levels(&[("KEYS_CHECK", 0)]);
    browser.open(&live.url("")).await;
    browser
        .run("localStorage.setItem('balde-name', 'Ana');", &[])
        .await;
    let button = format!("!!{ALERT}?.querySelector('.acknowledge')");
    browser.wait_until(&button).await;
    let file = live.folder.path().join("monitor.db");
    let file = sqlx::sqlite::SqliteConnectOptions::new().filename(file);
    let mut lock = file.connect().await.unwrap();
    sqlx::raw_sql("BEGIN IMMEDIATE")
        .execute(&mut lock)
        .await
        .unwrap();
    browser
        .click(".attention li[data-policy='KEYS_CHECK'] .acknowledge")
        .await;
    let says = |text: &str| format!("document.body.innerText.includes({})", json!(text));
    browser
        .wait_until(&says("fica na memória e será gravado quando ele voltar"))
        .await;
    browser.wait_until(&says("reconhecido por Ana")).await;
    browser
        .wait_until(&says("reconhecimentos e silêncios esperam na memória"))
        .await;
    // The alert about the database itself, which lives in memory.
    browser
        .wait_until("!!document.querySelector('#problems .acknowledge')")
        .await;
    browser.click("#problems .acknowledge").await;
    browser
        .wait_until("document.querySelector('#problems').innerText.includes('reconhecido por Ana')")
        .await;
    browser.screenshot("operator-without-database").await;
    lock.close().await.unwrap();
    let is_over = format!("!({})", says("esperam na memória"));
    browser.wait_until(&is_over).await;
    browser.wait_until(&says("reconhecido por Ana")).await;
    let silences = crate::driver::client().get(live.url("api/v1/silences"));
    let silences: Value = silences.send().await.unwrap().json().await.unwrap();
    assert_eq!(silences[0]["by"], "Ana", "{silences}");
}
