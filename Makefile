# A thin door: every target is one line of `cargo xtask`, where the work and its help live.
# `cargo xtask help` tells the arguments.
.PHONY: demo test setup lint bench dashboard interop deb oci reproduce router soak fuzz

demo:  ; cargo xtask demo
test:  ; cargo xtask test
setup: ; cargo xtask setup
lint:  ; cargo xtask lint
bench: ; cargo xtask bench
dashboard: ; cargo xtask dashboard
interop: ; cargo xtask interop
deb:   ; cargo xtask deb
oci:   ; cargo xtask oci
reproduce: ; cargo xtask reproduce
router: ; cargo xtask router
soak:  ; cargo xtask soak
fuzz:  ; cargo xtask fuzz
