//! A key's type follows from its pattern, and no key has two.

use balde_dict::{KeyType, Profile, Table, profiles};
use proptest::prelude::*;

fn types_of(profile: &Profile, key: &str) -> Vec<KeyType> {
    let pattern = |key_type: &KeyType| profile.pattern(key_type.as_str()).unwrap();
    let fitting = KeyType::ALL
        .into_iter()
        .filter(|one| pattern(one).matches(key));
    fitting.collect()
}

#[test]
fn examples_of_every_type_and_their_near_misses() {
    let table = Table::new(profiles::default()).unwrap();
    for (key, key_type) in [
        ("12345678901", Some(KeyType::Cpf)),
        ("12345678901234", Some(KeyType::Cnpj)),
        ("12ABC34501DE35", Some(KeyType::Cnpj)),
        ("+5511987654321", Some(KeyType::Phone)),
        ("+12", Some(KeyType::Phone)),
        ("+123456789012345", Some(KeyType::Phone)),
        ("+1234567890123456", None),
        ("pix@bcb.gov.br", Some(KeyType::Email)),
        ("o'neil+x_y@a-b.c", Some(KeyType::Email)),
        ("Pix@bcb.gov.br", None),
        ("pix@bcb.gov.BR", None),
        ("pix@@bcb.gov.br", None),
        ("joão@bcb.gov.br", None),
        ("123e4567-e89b-12d3-a456-426655440000", Some(KeyType::Evp)),
        ("123e4567-e89b-12d3-a456-42665544000", None),
        ("123e4567e89b12d3a456426655440000", None),
        ("１２３４５６７８９０１", None),
        ("1234567890", None),
        ("12abc34501de35", Some(KeyType::Cnpj)),
        ("a%b@bcb.gov.br", None),
        ("", None),
    ] {
        assert_eq!(table.key_type(key), key_type, "{key}");
    }
    let old = Table::new(profiles::named("dict-1.8.0").unwrap()).unwrap();
    assert_eq!(old.key_type("12ABC34501DE35"), None);
    assert!(!old.is_ispb("1234567A") && table.is_ispb("1234567A") && table.is_ispb("1234567a"));
}

proptest! {
    #[test]
    fn no_key_has_two_types(
        key in prop_oneof![
            "[0-9A-Za-z+@.-]{0,40}",
            "[0-9]{9,16}",
            "\\+[0-9]{0,17}",
            "[0-9A-Z]{14}",
            "[a-z0-9+]{1,14}@[a-z0-9.-]{1,20}",
            "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
            "\\PC{0,80}",
        ],
    ) {
        for (_, text) in profiles::TEXTS {
            let profile = Profile::parse(text).unwrap();
            let types = types_of(&profile, &key);
            prop_assert!(types.len() <= 1, "{key} is {types:?}");
        }
    }

    #[test]
    fn what_is_made_in_a_shape_has_that_type(
        cpf in "[0-9]{11}",
        cnpj in "[0-9A-Za-z]{14}",
        phone in "\\+[1-9][0-9]{1,14}",
        email in "[a-z0-9.!#$'*+/=?^_`{|}~-]{1,30}@[a-z0-9]{1,20}(\\.[a-z0-9-]{1,10}){0,2}",
        evp in "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    ) {
        let profile = profiles::default();
        let keys = [cpf, cnpj, phone, email, evp];
        for (key, key_type) in keys.iter().zip(KeyType::ALL) {
            prop_assert_eq!(types_of(&profile, key), [key_type], "{}", key);
        }
    }
}
