# Runs as a service in a clean Debian that systemd has booted, started by `cargo xtask deb-check`: the
# package /first.deb with its units, upgraded to /second.deb, removed and purged. Says the verdict of each
# step as a test program does, then turns the machine off.
set -u
export LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp DEBIAN_FRONTEND=noninteractive
failed=0
verdict() { # name, exit code
    if [ "$2" = 0 ]; then echo "test deb::booted::$1 ... ok"; else
        echo "test deb::booted::$1 ... FAILED"
        systemctl --no-pager status gatewright.service gatewright.socket
        journalctl --no-pager --lines=40 --unit=gatewright.service
        failed=1
    fi
}
shown() { systemctl show --value --property "$1" gatewright.service; }
# Waits up to 30 s for a command to succeed.
until_true() {
    for _ in $(seq 150); do
        "$@" >/dev/null 2>&1 && return 0
        sleep 0.2
    done
    return 1
}
ready() { curl -s -m 5 http://127.0.0.1:8787/readyz | grep -q '"ready":true'; }
page() { curl -s -m 5 http://127.0.0.1:8787/ | grep -qi '<!doctype html>'; }
status() { gatewright status --socket /run/gatewright/gatewright.sock; }
# The process of a plane: control, data.
plane() { status | sed -n "s/^planes: .*$1 is process \\([0-9]*\\).*/\\1/p"; }
restarted() { [ "$(shown NRestarts)" -gt "$restarts" ] && [ "$(shown ActiveState)" = active ]; }
readings() {
    gatewright cse tree --url http://127.0.0.1:8080 --as CAdmin |
        sed -n 's/.*spo2 (cnt), \([0-9]*\) instances.*/\1/p'
}

dpkg -i /first.deb
verdict installs $?
# Type=notify: it is active only once the gateway has said that it is ready.
[ "$(shown ActiveState)" = active ] && [ "$(shown Type)" = notify ] && ready
verdict the_service_is_ready_when_the_installation_ends $?
until_true page
verdict the_page_answers $?
[ "$(shown User)" = gatewright ] &&
    [ "$(stat -c %U "/proc/$(shown MainPID)")" = gatewright ] &&
    status
verdict it_runs_as_its_user_and_root_asks_it $?

score=$(systemd-analyze security --no-pager gatewright.service | sed -n 's/.*Overall exposure level.*: \([0-9.]*\) .*/\1/p')
echo "== deb: systemd-analyze security $score (at most 2.5)"
[ -n "$score" ] && awk "BEGIN { exit !($score <= 2.5) }"
verdict the_score_of_the_running_unit $?

gatewright device simulate --kind oximeter --rate 2 --seconds 3 --to 127.0.0.1:6024
verdict a_device_reports $?
stored=$(readings)

restarts=$(shown NRestarts)
kill -9 "$(shown MainPID)"
until_true restarted && until_true ready && [ "$(readings)" = "$stored" ] && [ "$stored" -gt 0 ]
verdict kill_9_restarts_it_with_every_reading $?

# A gateway that no longer answers.
mkdir -p /run/systemd/system/gatewright.service.d
printf '[Service]\nWatchdogSec=3s\n' >/run/systemd/system/gatewright.service.d/check.conf
systemctl daemon-reload && systemctl restart gatewright.service
sleep 8
[ "$(shown NRestarts)" = 0 ] && [ "$(shown ActiveState)" = active ]
verdict the_watchdog_is_content_with_a_gateway_that_runs $?
restarts=0
kill -STOP "$(shown MainPID)"
until_true restarted && until_true ready &&
    journalctl --no-pager --unit=gatewright.service | grep -q 'Watchdog timeout'
verdict the_watchdog_restarts_one_that_does_not_answer $?
rm -r /run/systemd/system/gatewright.service.d
systemctl daemon-reload

cp /etc/gatewright/gateway.toml /tmp/right.toml
sed -i 's/^listen/lissten/' /etc/gatewright/gateway.toml
! systemctl reload gatewright.service && ready && [ "$(shown ActiveState)" = active ] &&
    journalctl --no-pager --unit=gatewright.service | grep -q GW0101
verdict a_wrong_description_is_refused_by_the_reload $?
systemctl restart gatewright.service && status | grep -q 'LAST GOOD DESCRIPTION RUNS' &&
    until_true page && curl -s -m 5 http://127.0.0.1:8787/readyz | grep -q 'the last good one runs' &&
    [ "$(readings)" = "$stored" ]
verdict a_start_with_it_runs_the_last_good_one $?
cp /tmp/right.toml /etc/gatewright/gateway.toml
systemctl reload gatewright.service && ready &&
    ! status | grep -q 'LAST GOOD'
verdict the_right_one_is_taken_by_the_reload $?

systemctl stop gatewright.service && ! ready && [ "$(shown Result)" = success ]
verdict it_stops $?
systemctl enable --now gatewright.socket && [ "$(shown ActiveState)" = inactive ] && ready &&
    [ "$(shown ActiveState)" = active ]
verdict a_connection_starts_it $?
# Clients wait while it restarts; none is refused.
systemctl restart --no-block gatewright.service
refused=0
for _ in $(seq 20); do
    curl -s -m 20 -o /dev/null http://127.0.0.1:8787/livez || refused=1
done
[ $refused = 0 ] && until_true ready
verdict no_client_is_refused_while_it_restarts $?

echo '# mine' >>/etc/gatewright/gateway.toml
dpkg -i /second.deb
verdict upgrades $?
until_true ready && [ "$(shown ActiveState)" = active ] && 
    [ "$(readlink "/proc/$(shown MainPID)/exe")" = /usr/bin/gatewright ] &&
    [ "$(readings)" = "$stored" ] && tail -1 /etc/gatewright/gateway.toml | grep -q mine
verdict the_upgrade_runs_the_new_program_with_every_reading $?

# Two planes, over a cable that ends here.
ip link add lan type veth peer name far && ip link set lan up && ip link set far up
printf '[planes]\nmode = "process"\n\n[link.lan]\naddresses = ["192.0.2.1/24"]\n' >/etc/gatewright/conf.d/lan.toml
systemctl restart gatewright.service && until_true ready
control=$(plane control) data=$(plane data)
[ "$control" = "$(shown MainPID)" ] && [ -n "$data" ] && [ "$control" != "$data" ]
verdict two_planes_run $?
restarts=$(shown NRestarts)
kill -9 "$control"
until_true restarted && until_true ready && [ "$(plane data)" = "$data" ] && [ "$(plane control)" != "$control" ]
verdict kill_9_of_control_leaves_the_data_plane $?
control=$(plane control)
dpkg -i /second.deb
until_true ready && [ "$(plane control)" = "$control" ] && [ "$(shown MainPID)" = "$control" ] &&
    [ "$(plane data)" != "$data" ] && [ "$(shown ActiveState)" = active ] &&
    [ "$(readlink "/proc/$control/exe")" = /usr/bin/gatewright ]
verdict the_package_exchanges_the_planes_one_after_the_other $?
! journalctl --no-pager --boot --unit=gatewright.service | grep -e 'mode is different' -e 'Unknown key'
verdict systemd_warns_of_nothing $?

dpkg -r gatewright
[ "$(systemctl is-active gatewright.service)" = inactive ] && ! ready &&
    ! find /proc -maxdepth 1 -user gatewright | grep . && [ -e /var/lib/gatewright/cse.db ]
verdict removed_it_runs_no_more_and_keeps_what_it_stored $?
dpkg -P gatewright
[ ! -e /etc/gatewright ] && [ ! -e /var/lib/gatewright ] && [ ! -e /run/gatewright ] &&
    ! getent passwd gatewright && ! systemctl cat gatewright.service gatewright.socket &&
    ! find /etc/systemd /var/lib/systemd -name '*gatewright*' | grep .
verdict purged_it_leaves_nothing $?
[ -z "$(systemctl --no-legend --plain --failed list-units | grep gatewright)" ]
verdict no_unit_of_it_has_failed $?
echo "exit $failed"
