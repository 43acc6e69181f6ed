//! The dashboard in a real Chromium, driven over `WebDriver`: what it shows and does, accessibility,
//! narrow screens, and attacks by foreign pages and hostile texts.

mod accessibility;
mod attacks;
mod axe;
mod driver;
mod live;
mod operators;
mod pages;
mod pictures;
mod year;

/// Every page, with a text of the policy page's bucket in its address.
const PAGES: [&str; 6] = [
    "#/",
    "#/policy/12345678/KEYS_CHECK",
    "#/alerts",
    "#/incidents",
    "#/gateway",
    "#/operations",
];
