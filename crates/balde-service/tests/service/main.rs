//! The service over its protocols: real sockets, real clients, real Redis.

#[path = "../../../balde/tests/support/redis_server.rs"]
#[expect(dead_code, reason = "these tests need the server's URL only")]
mod redis_server;

#[path = "../support/certificates.rs"]
mod certificates;

#[path = "../support/proxy_process.rs"]
mod proxy_process;

#[path = "../../../balde-monitor/tests/browser/axe.rs"]
mod axe;

#[path = "../../../balde-monitor/tests/browser/driver.rs"]
#[expect(dead_code, reason = "this page has no menus")]
mod driver;

mod config;
mod console;
mod differential;
mod hostile;
mod http_api;
mod instances;
mod pages;
mod proxies;
mod reload;
mod resp_clients;
mod resp_commands;
mod rls;
mod running;
mod tls;

use running::eventually;
