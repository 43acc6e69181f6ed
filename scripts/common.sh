# Functions that other scripts share. Sourced, not run; the caller has changed to the repository's root.

# Installs Debian packages.
install_packages() { # PACKAGE...
  [ $# -gt 0 ] || return 0
  local as_root=()
  [ "$(id -u)" = 0 ] || as_root=(sudo)
  "${as_root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq "$@"
}

# Makes a folder for temporary files, $folder. When the script ends, it is removed, and the processes that
# `run` has started are stopped.
start_folder() {
  folder=$(mktemp -d)
  pids=()
  trap stop_folder EXIT
}
stop_processes() {
  local pid
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  pids=()
}
stop_folder() {
  stop_processes
  rm -rf "$folder"
}
run() { "$@" >>"$folder/out.log" 2>&1 & pids+=($!); }

# Writes $folder/NAME.conf for nginx with one worker.
nginx_conf() { # NAME PORT LOCATIONS HTTP
  cat >"$folder/$1.conf" <<CONF
worker_processes 1;
pid $folder/$1.pid;
error_log $folder/$1.log crit;
daemon off;
events { worker_connections 4096; }
http {
  access_log off;
  keepalive_requests 1000000000;
  client_body_temp_path $folder/$1-body;
  proxy_temp_path $folder/$1-proxy;
  fastcgi_temp_path $folder/$1-fastcgi;
  uwsgi_temp_path $folder/$1-uwsgi;
  scgi_temp_path $folder/$1-scgi;
  $4
  server {
    listen 127.0.0.1:$2 reuseport;
    $3
  }
}
CONF
}

# Writes $folder/NAME.toml for a gateway with one worker, in front of the upstream on $upstream_port.
gateway_conf() { # NAME PORT SECTIONS [KEYS of the upstream]
  cat >"$folder/$1.toml" <<CONF
[[listener]]
address = "127.0.0.1:$2"
[[upstream]]
name = "backend"
url = "http://127.0.0.1:$upstream_port"
${4:-}
[[route]]
path = "/"
upstream = "backend"
[server]
workers = 1
$3
CONF
}

# A policy that is checked for every request and never reached.
unreached_policy='[[policies.policy]]
name = "all"
scope = "user"
limit = "1000000/s burst 1000000"'
