import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';

// The page has 60 kB of JavaScript at the most. Svelte brings what the page does not use, in a form
// that a bundler must keep. What is cut here is checked: the build fails where a pinned version has
// changed, or where the page begins to use what is gone.

// Svelte: custom elements, and proxies of state. All state of the page is raw.
const SVELTE = {
  'client/dom/elements/custom-element.js':
    'export const create_custom_element = () => { throw new Error("no custom elements"); };',
  'client/proxy.js':
    'export const proxy = (value) => value; export const get_proxied_value = proxy; export const is = Object.is;',
};

/** A plugin of Vite that cuts them. */
export function slim() {
  let seen = new Set();
  return {
    name: 'slim',
    enforce: 'pre',
    apply: 'build',
    buildStart() {
      seen = new Set();
    },
    transform(code, id) {
      const stub = Object.keys(SVELTE).find((name) => id.endsWith(`svelte/src/internal/${name}`));
      if (!stub) return undefined;
      seen.add(stub);
      return { code: SVELTE[stub], map: null };
    },
    generateBundle() {
      for (const name of Object.keys(SVELTE)) {
        if (!seen.has(name)) throw new Error(`slim: ${name} is not in the page any more`);
      }
    },
  };
}

/** A plugin that looks at compiled components: none may need a proxy. */
export function raw() {
  return {
    name: 'raw',
    apply: 'build',
    enforce: 'post',
    transform(code, id) {
      if (/\/src\/.*\.svelte(\.ts)?$/.test(id) && code.includes('$.proxy('))
        throw new Error(`${id}: use $state.raw`);
    },
  };
}

/** A plugin that writes each file compressed beside it, for the server. */
export function compressed(folder) {
  return {
    name: 'compressed',
    apply: 'build',
    closeBundle() {
      const entries = readdirSync(folder, { recursive: true, withFileTypes: true });
      for (const entry of entries.filter((entry) => entry.isFile())) {
        const path = `${entry.parentPath ?? entry.path}/${entry.name}`;
        writeFileSync(`${path}.gz`, gzipSync(readFileSync(path), { level: 9 }));
      }
    },
  };
}
