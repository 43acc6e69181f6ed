#!/usr/bin/env bash
# Makes the screenshots of the README from the browser tests, with the Chromium that scripts/test.sh
# installs. They show the tests' data: every state a bucket can be in.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
BALDE_REQUIRE_SERVICES=1 BALDE_SCREENSHOTS=$folder cargo test --workspace --exclude balde-bench \
  --all-features --test browser -- the_first_page a_year
mkdir -p docs/images
for name in overview-light overview-dark policy; do
  # Fewer colours make a quarter of the size; pngquant is optional.
  if command -v pngquant >/dev/null; then
    pngquant --force --output "docs/images/$name.png" 128 "$folder/$name.png"
  else
    cp "$folder/$name.png" "docs/images/$name.png"
  fi
done
ls -l docs/images
