/** Light or dark: as the system has it, unless the user chose. */

export type Choice = 'system' | 'light' | 'dark';

const KEY = 'gatewright-theme';
const system = matchMedia('(prefers-color-scheme: dark)');

function remembered(): Choice {
  try {
    const choice = localStorage.getItem(KEY);
    return choice === 'light' || choice === 'dark' ? choice : 'system';
  } catch {
    return 'system';
  }
}

class Theme {
  choice = $state.raw<Choice>(remembered());
  dark = $state.raw(false);

  constructor() {
    system.addEventListener('change', () => this.#apply());
    this.#apply();
  }

  choose(choice: Choice): void {
    this.choice = choice;
    try {
      localStorage.setItem(KEY, choice);
    } catch {
      // A browser that remembers nothing.
    }
    this.#apply();
  }

  #apply(): void {
    this.dark = this.choice === 'dark' || (this.choice === 'system' && system.matches);
    document.documentElement.dataset.theme = this.dark ? 'dark' : 'light';
  }
}

export const theme = new Theme();

/** The value of a colour of the style sheet, for canvases. */
export const colour = (name: string): string =>
  getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
