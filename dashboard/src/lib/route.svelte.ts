/** The view and what is chosen in it: `#/devices/phd-1`. */

function parse(): string[] {
  return location.hash
    .replace(/^#\/?/, '')
    .split('/')
    .filter(Boolean)
    .map((part) => {
      try {
        return decodeURIComponent(part);
      } catch {
        return part;
      }
    });
}

class Route {
  #parts = $state.raw<string[]>(parse());

  constructor() {
    addEventListener('hashchange', () => (this.#parts = parse()));
  }

  get view(): string {
    return this.#parts[0] ?? 'overview';
  }

  get chosen(): string | undefined {
    return this.#parts[1];
  }
}

export const route = new Route();

export const href = (...parts: string[]): string => '#/' + parts.map(encodeURIComponent).join('/');
