# A thin door: every target is one line of `cargo xtask`, where the work and its help live.
.PHONY: demo test setup lint bench fuzz interop soak

demo:    ; cargo xtask demo
test:    ; cargo xtask test
setup:   ; cargo xtask setup
lint:    ; cargo xtask lint
bench:   ; cargo xtask bench
fuzz:    ; cargo xtask fuzz
interop: ; cargo xtask interop
soak:    ; cargo xtask soak
