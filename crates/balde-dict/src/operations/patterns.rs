//! The patterns of a profile that DICT's operations use.

use balde_config::Diagnostics;
use balde_policy::{Pattern, Profile};

use super::KeyType;

#[derive(Clone, Debug)]
pub(super) struct Patterns {
    pub(super) keys: [Pattern; 5],
    /// A company's tax number, where it is not a key.
    pub(super) company: Pattern,
    pub(super) ispb: Pattern,
    pub(super) end_to_end_id: Pattern,
}

impl Patterns {
    pub(super) fn of(profile: &Profile, diagnostics: &mut Diagnostics) -> Option<Self> {
        let mut named = |name: &str| {
            let pattern = profile.pattern(name).cloned();
            if pattern.is_none() {
                let reason = format!("[patterns] of a DICT profile needs `{name}`");
                diagnostics.at(None, reason);
            }
            pattern
        };
        let keys = KeyType::ALL.map(|key_type| named(key_type.as_str()));
        let (ispb, end_to_end_id) = (named("ISPB"), named("END-TO-END-ID"));
        let [Some(cpf), Some(cnpj), Some(phone), Some(email), Some(evp)] = keys else {
            return None;
        };
        // Older profiles have one pattern for both.
        let company = profile.pattern("COMPANY").cloned();
        let company = company.unwrap_or_else(|| cnpj.clone());
        Some(Self {
            keys: [cpf, cnpj, phone, email, evp],
            company,
            ispb: ispb?,
            end_to_end_id: end_to_end_id?,
        })
    }
}
