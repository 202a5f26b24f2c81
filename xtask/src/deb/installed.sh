# Runs in a clean Debian, started by `cargo xtask deb-check`: installs the package /first.deb, upgrades
# to /second.deb, removes and purges it. Says the verdict of each step as a test program does.
set -u
export LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp DEBIAN_FRONTEND=noninteractive
failed=0
verdict() { # name, exit code
    if [ "$2" = 0 ]; then echo "test deb::$1 ... ok"; else echo "test deb::$1 ... FAILED"; failed=1; fi
}
# Every file but those of dpkg itself, its logs, what programs cache, and backups of the user lists.
files() {
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /var/lib/dpkg \
        -o -path /var/log -o -path /var/cache -o -path /first.deb -o -path /second.deb \) -prune \
        -o ! -name 'passwd-' ! -name 'group-' ! -name 'shadow-' ! -name 'gshadow-' \
        ! -name '.pwd.lock' -print | sort
}
users() { cat /etc/passwd /etc/group; }

# Somebody new, who is no administrator.
useradd --create-home --shell /bin/sh me
install -d -o me /tmp/me

files >/tmp/before
users >/tmp/users
begin=$(date +%s%N)

dpkg -i /first.deb
verdict installs $?

(gatewright demo ward --seconds 4 2>&1; echo "exit $?") | while IFS= read -r line; do
    case "$line" in
    bed*)
        if [ ! -e /tmp/first ]; then
            echo "$line" >/tmp/first
            ms=$((($(date +%s%N) - begin) / 1000000))
            echo "== deb: first_message_s $((ms / 1000)).$(printf %03d $((ms % 1000))) from the package's installation to a translated reading (at most 60): $line"
            [ $ms -le 60000 ] && : >/tmp/quick
        fi
        ;;
    exit*) echo "$line" >/tmp/ended ;;
    *) echo "$line" ;;
    esac
done
[ -e /tmp/quick ]
verdict the_first_message_is_translated_within_a_minute $?
[ "$(cat /tmp/ended)" = "exit 0" ]
verdict the_demo_passes $?

gatewright check /etc/gatewright/gateway.toml
verdict the_description_is_right $?

getent passwd gatewright && [ "$(stat -c '%U %a' /var/lib/gatewright)" = "gatewright 700" ] &&
    [ "$(stat -c '%U %a' /etc/gatewright/credentials)" = "root 700" ]
verdict the_user_owns_its_state_and_root_the_credentials $?

# As the service runs it: its user, its description.
setpriv --reuid=gatewright --regid=gatewright --clear-groups \
    gatewright run --stop-after 6 --last-good /var/lib/gatewright/last-good.toml /etc/gatewright >/tmp/ran 2>&1 &
service=$!
answered=1
for _ in 1 2 3 4 5 6 7 8 9 10; do
    sleep 0.4
    gatewright status --socket /run/gatewright/gatewright.sock >/tmp/status 2>&1 && answered=0 && break
done
wait $service || { answered=1; cat /tmp/ran; }
[ $answered = 0 ] || cat /tmp/status
verdict the_service_answers $answered

# The manual's first page, as somebody new follows it: its commands in their order, without those of the
# installation. A gateway in the background answers before the next command is typed.
awk '/^```/ { fenced = !fenced; console = /console/; next }
    !fenced { next }
    console { if (sub(/^\$ /, "")) print; next }
    { print }
    /&$/ { print "for _ in $(seq 600); do gatewright status >/dev/null 2>&1 && break; sleep 0.1; done" }
    END { print "kill $!; wait" }' /usr/share/doc/gatewright/docs/first-steps.md >/tmp/me/first-steps.sh
begin=$(date +%s%N)
(cd /tmp/me && HOME=/tmp/me XDG_RUNTIME_DIR=/tmp/me setpriv --reuid=me --regid=me --clear-groups \
    sh /tmp/me/first-steps.sh) >/tmp/me/said 2>&1
ms=$((($(date +%s%N) - begin) / 1000000))
echo "== deb: first_page_s $((ms / 1000)).$(printf %03d $((ms % 1000))): the commands of the manual's first page, to the values of a curve"
grep -q '{"ready":true}' /tmp/me/said && grep -q '"value"' /tmp/me/said && grep -q 'GW0101: ' /tmp/me/said ||
    { cat /tmp/me/said; false; }
verdict the_first_page_leads_to_a_reading_on_a_curve $?

pages=0
for page in gatewright gatewright-run gatewright-check gatewright-web gatewright-store; do
    gzip -t /usr/share/man/man1/$page.1.gz || pages=1
done
[ $pages = 0 ] && [ -f /usr/share/doc/gatewright/examples/ward/gateway.toml ] &&
    bash -n /usr/share/bash-completion/completions/gatewright &&
    grep -q compdef /usr/share/zsh/vendor-completions/_gatewright &&
    grep -q "complete -c gatewright" /usr/share/fish/vendor_completions.d/gatewright.fish
verdict manual_pages_and_completions_are_in_place $?

[ -L /etc/systemd/system/multi-user.target.wants/gatewright.service ]
verdict the_service_is_enabled $?

# What the administrator wrote stays, whatever comes.
echo "# mine" >>/etc/gatewright/gateway.toml
: >/var/lib/gatewright/mine
sum=$(md5sum </etc/gatewright/gateway.toml)
dpkg -i /second.deb
verdict upgrades $?
[ "$(md5sum </etc/gatewright/gateway.toml)" = "$sum" ] && [ -e /var/lib/gatewright/mine ]
verdict the_upgrade_keeps_what_was_written $?

dpkg -r gatewright
verdict removes $?
[ ! -e /usr/bin/gatewright ] && [ "$(md5sum </etc/gatewright/gateway.toml)" = "$sum" ] &&
    [ -e /var/lib/gatewright/mine ]
verdict what_was_written_stays_when_it_is_removed $?

dpkg -i /second.deb && [ "$(md5sum </etc/gatewright/gateway.toml)" = "$sum" ]
verdict installs_again_over_what_was_written $?

dpkg -P gatewright
verdict purges $?
files >/tmp/after
diff /tmp/before /tmp/after
verdict the_purge_leaves_no_file $?
users | diff /tmp/users -
verdict the_purge_leaves_no_user $?
exit $failed
