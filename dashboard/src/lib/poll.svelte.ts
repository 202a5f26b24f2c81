import { ask, Refusal } from './gateway.svelte';

/** An answer of the API that is asked for again while somebody looks. */
export class Polled<T> {
  value = $state.raw<T | null>(null);
  problem = $state.raw('');
  code = $state.raw(0);

  /** For use while a component is made; `path` may change, and null asks nothing. */
  constructor(path: () => string | null, milliseconds: number) {
    $effect(() => {
      const from = path();
      this.value = null;
      this.problem = '';
      this.code = 0;
      if (from === null) return;
      let over = false;
      const look = async () => {
        if (document.hidden) return;
        try {
          const value = await ask<T>(from);
          if (over) return;
          this.value = value;
          this.problem = '';
          this.code = 200;
        } catch (error) {
          if (over) return;
          this.problem = (error as Error).message;
          this.code = error instanceof Refusal ? error.code : 0;
        }
      };
      look();
      const timer = setInterval(look, milliseconds);
      return () => {
        over = true;
        clearInterval(timer);
      };
    });
  }
}
