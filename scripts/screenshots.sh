#!/usr/bin/env bash
# Makes pictures of the dashboard's pages with the Chromium of the browser tests: every page in both
# themes, 1280 and 390 pixels wide, into FOLDER (default: target/screenshots), and of these the ones
# that the README shows into docs/images. They show the tests' data: every state a bucket can be in.
# usage: scripts/screenshots.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$(realpath -m "${1:-${CARGO_TARGET_DIR:-target}/screenshots}")
mkdir -p "$folder" docs/images
BALDE_REQUIRE_SERVICES=1 BALDE_SCREENSHOTS=$folder cargo test --workspace --exclude balde-bench \
  --all-features --test browser -- the_first_page a_year
for name in overview-light overview-dark policy; do
  # Fewer colours make a quarter of the size; pngquant is optional.
  if command -v pngquant >/dev/null; then
    pngquant --force --output "docs/images/$name.png" 128 "$folder/$name.png"
  else
    cp "$folder/$name.png" "docs/images/$name.png"
  fi
done
ls -l "$folder" docs/images
