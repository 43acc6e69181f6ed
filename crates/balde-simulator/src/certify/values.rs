//! The values that the texts of steps refer to as `{name}`.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use balde_dict::wire::Timestamp;
use ring::hmac;

const ALPHANUMERIC: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// Names and values.
#[derive(Clone, Debug)]
pub(super) struct Values(BTreeMap<&'static str, String>);

impl Values {
    /// The values that a conversation begins with. Keys, persons and request ids are random, so that a
    /// conversation can be repeated.
    pub(super) fn new(participant: &str, counterparty: &str, transactions: &[String]) -> Self {
        let mut values = Self(BTreeMap::new());
        values.set("participant", participant);
        values.set("counterparty", counterparty);
        values.set(
            "phone",
            &format!("+55619{:08}", fastrand::u32(..100_000_000)),
        );
        values.set(
            "free_phone",
            &format!("+55619{:08}", fastrand::u32(..100_000_000)),
        );
        for name in ["donor", "claimer", "payer"] {
            values.set(name, &cpf());
        }
        for name in [
            "request",
            "other_request",
            "complete_request",
            "marker_request",
        ] {
            values.set(name, &uuid());
        }
        for (at, name) in ["root", "flaw"].into_iter().enumerate() {
            let made_up = || transaction_id('E', participant);
            let id = transactions.get(at).cloned().unwrap_or_else(made_up);
            values.set(name, &id);
        }
        values.set("lookup", &transaction_id('E', participant));
        values.set("own_lookup", &transaction_id('E', counterparty));
        values.set("return", &transaction_id('D', counterparty));
        values
    }

    pub(super) fn set(&mut self, name: &'static str, value: &str) {
        self.0.insert(name, value.to_owned());
    }

    /// Computes values from those that are known.
    pub(super) fn prepare(&mut self, names: &[&'static str]) {
        for name in names {
            if *name == "cid" {
                let cid = self.cid();
                self.set("cid", &cid);
            }
        }
    }

    /// The content id of the counterparty's entry, as the API describes it.
    fn cid(&self) -> String {
        let get = |name: &str| self.0.get(name).map_or("", String::as_str);
        let content = format!(
            "PHONE&{}&{}&Maria Souza&&{}&0001&0007654321&CACC",
            get("phone"),
            get("donor"),
            get("counterparty")
        );
        let digits = get("request").replace('-', "");
        let bytes = u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes();
        let key = hmac::Key::new(hmac::HMAC_SHA256, &bytes);
        hex::encode(hmac::sign(&key, content.as_bytes()))
    }
}

/// Replaces `{name}` by its value, or returns a name that has none.
pub(super) fn fill(text: &str, values: &Values) -> Result<String, String> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, behind) = after.split_once('}').unwrap_or((after, ""));
        let (name, is_encoded) = match name.strip_prefix('%') {
            Some(name) => (name, true),
            None => (name, false),
        };
        let value = values.0.get(name).ok_or_else(|| name.to_owned())?;
        filled.push_str(before);
        if is_encoded {
            filled.push_str(&value.replace('+', "%2B"));
        } else {
            filled.push_str(value);
        }
        rest = behind;
    }
    filled.push_str(rest);
    Ok(filled)
}

fn uuid() -> String {
    let random = fastrand::u128(..) & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let text = format!("{random:032x}");
    let parts = [
        &text[..8],
        &text[8..12],
        &text[12..16],
        &text[16..20],
        &text[20..],
    ];
    parts.join("-")
}

/// The id of a payment (`E`) or of a return (`D`) that a participant sends now.
fn transaction_id(kind: char, participant: &str) -> String {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let now = Timestamp::from_ms(u64::try_from(since.as_millis()).unwrap_or(0));
    let digits: String = now
        .to_string()
        .chars()
        .filter(char::is_ascii_digit)
        .collect();
    let random = (0..11).map(|_| char::from(ALPHANUMERIC[fastrand::usize(..ALPHANUMERIC.len())]));
    format!(
        "{kind}{participant}{}{}",
        &digits[..12],
        random.collect::<String>()
    )
}

/// A CPF with right check digits.
fn cpf() -> String {
    let mut digits: Vec<u32> = (0..9).map(|_| fastrand::u32(..10)).collect();
    for length in [10, 11] {
        let weights = (2..=length).rev();
        let sum: u32 = digits
            .iter()
            .zip(weights)
            .map(|(digit, weight)| digit * weight)
            .sum();
        digits.push(match sum % 11 {
            0 | 1 => 0,
            rest => 11 - rest,
        });
    }
    digits.iter().map(u32::to_string).collect()
}

#[cfg(test)]
mod tests {
    use balde_dict::wire::formats::{is_cpf, is_end_to_end_id, is_uuid_v4};

    use super::*;

    #[test]
    fn made_up_values_have_their_formats() {
        for _ in 0..100 {
            assert!(is_uuid_v4(&uuid()) && is_cpf(&cpf()));
            assert!(is_end_to_end_id(&transaction_id('E', "12345678")));
        }
    }

    #[test]
    fn a_value_without_a_name_is_reported() {
        let values = Values::new("12345678", "87654321", &[]);
        let filled = fill("/entries/{participant}/x", &values);
        assert_eq!(filled.as_deref(), Ok("/entries/12345678/x"));
        assert_eq!(fill("{claim}", &values), Err("claim".to_owned()));
    }
}
