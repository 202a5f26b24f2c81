# Installs the packages given as arguments; started by `cargo xtask setup`.
# While apt runs, no daemon is started: Debian's policy-rc.d says 101, "not allowed". A policy that
# the machine has already is left alone; ours is taken away however this ends.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ] || grep -q gatewright-setup "$policy"; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 130' INT TERM HUP
    printf '#!/bin/sh\n# gatewright-setup\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi
apt-get install -q -y -o Dpkg::Use-Pty=0 --no-install-recommends "$@"
