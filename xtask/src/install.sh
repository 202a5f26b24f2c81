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
# Of postfix only the load tools are wanted: it asks nothing and sets up no mail server.
case " $* " in *" postfix "*)
    echo "postfix postfix/main_mailer_type select No configuration" | debconf-set-selections ;;
esac
apt-get install -q -y -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 --no-install-recommends "$@"
