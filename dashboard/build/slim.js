import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';

// The page has 60 kB of JavaScript at the most. Two libraries bring what it does not use, in a form
// that a bundler must keep. What is cut here is checked: the build fails where a pinned version has
// changed, or where the page begins to use what is gone.

// uPlot: other paths than straight lines, a legend in HTML, a second kind of plot, times of its own.
const UPLOT = [
  [/\{\s*uPlot\.join = join;\s*\}[\s\S]*$/, 'uPlot.sync = _sync;\nexport { uPlot as default };\n'],
  [/uPlot\.assign = assign;[\s\S]*?uPlot\.pxRatio = pxRatio;/, ''],
  ['const showLegend = legend.show;', ''],
  [/\bshowLegend\b/g, 'false'],
  [/\blegend\.(live|show)\b/g, 'false'],
  [/const FEAT_TIME\s*= true;/, ''],
  [/\bFEAT_TIME\b/g, 'false'],
  // Nothing is selected by dragging.
  [/\bselect\.show && dragging\b/g, 'false'],
  [/\bif \(dragging\b/g, 'if (false'],
  // Scales are linear.
  [/\b\w+\.distr == (2|3|4|100)\b/g, 'false'],
  [/\bmode == 1\b/g, 'true'],
  [/\bmode == 2\b/g, 'false'],
];

// Functions of uPlot that are never called here, and what is in their places.
const UNCALLED = {
  genTimeStuffs: 'return [[], [], () => {}];',
  timeAxisVals: '',
  timeAxisStamps: 'return [];',
  timeSeriesVal: '',
  timeSeriesStamp: '',
  fmtDate: '',
  tzDate: '',
  logAxisSplits: '',
  asinhAxisSplits: '',
  log10AxisValsFilt: '',
  log2AxisValsFilt: '',
  rangeLog: '',
  clipBandLine: '',
  initLegendRow: '',
  setLegend: '',
  setLegendValues: '',
  syncLegend: '',
  addSeries: '',
  delSeries: '',
  addBand: '',
  setBand: '',
  delBand: '',
  setFocus: '',
  toggleDOM: '',
  dblClick: '',
  mouseDown: '',
  mouseUp: '',
};

// Svelte: custom elements, and proxies of state. All state of the page is raw.
const SVELTE = {
  'client/dom/elements/custom-element.js':
    'export const create_custom_element = () => { throw new Error("no custom elements"); };',
  'client/proxy.js':
    'export const proxy = (value) => value; export const get_proxied_value = proxy; export const is = Object.is;',
};

/** A plugin of Vite that cuts both. */
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
      if (id.includes('uPlot.esm')) {
        for (const [what, by] of UPLOT) {
          const cut = code.replace(what, by);
          if (cut === code) throw new Error(`uPlot has changed: ${what} is not there`);
          code = cut;
        }
        for (const [name, body] of Object.entries(UNCALLED)) {
          const cut = code.replace(
            new RegExp(`^(\\t?)function ${name}\\([\\s\\S]*?^\\1}`, 'm'),
            `function ${name}() {${body}}`,
          );
          if (cut === code) throw new Error(`uPlot has changed: it has no function ${name}`);
          code = cut;
        }
        seen.add('uplot');
        return { code, map: null };
      }
      const stub = Object.keys(SVELTE).find((name) => id.endsWith(`svelte/src/internal/${name}`));
      if (!stub) return undefined;
      seen.add(stub);
      return { code: SVELTE[stub], map: null };
    },
    generateBundle() {
      for (const name of ['uplot', ...Object.keys(SVELTE)]) {
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
