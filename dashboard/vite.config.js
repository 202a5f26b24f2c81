import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';
import { compressed, raw, slim } from './build/slim.js';

// The page is embedded in the binary: its files are committed, so that a build of the gateway needs
// no Node. Names carry a hash of the content, so that a browser may keep them for ever.
const outDir = process.env.GATEWRIGHT_PAGE ?? '../crates/web/page';

export default defineConfig({
  plugins: [slim(), svelte(), raw(), compressed(outDir)],
  build: {
    outDir,
    emptyOutDir: true,
    target: 'es2022',
    modulePreload: { polyfill: false },
    // A policy without `data:` for styles and fonts: nothing is inlined.
    assetsInlineLimit: 0,
    reportCompressedSize: false,
  },
});
