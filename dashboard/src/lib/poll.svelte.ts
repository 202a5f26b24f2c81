import { ask, Refusal } from './api';

/** An answer of the API that is asked for again while somebody looks. */
export class Polled<T> {
  value = $state.raw<T | null>(null);
  problem = $state.raw('');
  code = $state.raw(0);

  /**
   * For use while a component is made; `path` may change, and null asks nothing. With `endsAt404`
   * what is not there is not asked for again: only a start of the gateway could change that.
   */
  constructor(path: () => string | null, milliseconds: number, endsAt404 = false) {
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
          if (endsAt404 && this.code === 404) clearInterval(timer);
        }
      };
      const timer = setInterval(look, milliseconds);
      look();
      return () => {
        over = true;
        clearInterval(timer);
      };
    });
  }
}
