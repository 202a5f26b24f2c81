# A thin door: every target is one line of `cargo xtask`, where the work and its help live.
# `cargo xtask help` tells the arguments.
.PHONY: demo test setup lint bench fuzz

demo:  ; cargo xtask demo
test:  ; cargo xtask test
setup: ; cargo xtask setup
lint:  ; cargo xtask lint
bench: ; cargo xtask bench
fuzz:  ; cargo xtask fuzz
