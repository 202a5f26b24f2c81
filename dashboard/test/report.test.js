// A report of the delay lab in a browser, in both themes, three widths and on paper: no error on the
// console, nothing fetched, nothing that axe finds, nothing wider than the window, every figure with its
// data. Pictures to be looked at are left in target/report.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { after, before, test } from 'node:test';
import { chromium } from 'playwright-core';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const WIDTHS = [360, 900, 1440];
const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const PICTURES = `${ROOT}target/report`;
const CARGO = ['cargo', 'run', '--quiet', '--locked', '--package', 'gatewright', '--'];

const EXPERIMENT = `
title = "A report in a browser"
relays = ["kernel", "translate-udp", "encrypt-portable", "spin"]
seconds = 0.1
repeats = 3
repeats_max = 3
[centre]
octets = 1000
rate = 400
[vary]
octets = [100, 1200, 1400]
rate = [100, 800]
load_pct = [50]
batch = [4]
`;

let browser, folder, url;
before(async () => {
  folder = mkdtempSync(`${tmpdir()}/lab-report-`);
  writeFileSync(`${folder}/browser.toml`, EXPERIMENT);
  const [program, ...arguments_] = process.env.GATEWRIGHT ? [process.env.GATEWRIGHT] : CARGO;
  const run = spawnSync(
    program,
    [...arguments_, 'lab', 'run', `${folder}/browser.toml`, '-o', folder],
    { cwd: ROOT, encoding: 'utf8' },
  );
  assert.equal(run.status, 0, run.stderr);
  url = pathToFileURL(`${folder}/lab-browser.html`).href;
  mkdirSync(PICTURES, { recursive: true });
  const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium';
  browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });
});
after(async () => {
  await browser?.close();
  rmSync(folder, { recursive: true });
});

/** The report in a window; `said` collects errors of its console, `asked` what it fetches. */
async function open(options) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  const [said, asked] = [[], []];
  page.on('console', (message) => message.type() === 'error' && said.push(message.text()));
  page.on('pageerror', (error) => said.push(error.stack));
  page.on('request', (request) => request.url() !== url && asked.push(request.url()));
  await page.goto(url);
  return { page, said, asked, close: () => context.close() };
}

for (const colorScheme of ['light', 'dark']) {
  for (const width of WIDTHS) {
    test(`the report, ${colorScheme}, ${width} pixels`, async () => {
      const viewport = { width, height: 800 };
      const { page, said, asked, close } = await open({ colorScheme, viewport });
      const paper = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      assert.equal(paper === 'rgb(255, 255, 255)', colorScheme === 'light', paper);
      await page.evaluate(() => document.querySelectorAll('details').forEach((it) => (it.open = true)));
      const widest = await page.evaluate(() => document.documentElement.scrollWidth);
      assert.ok(widest <= width, `${widest} pixels wide`);
      await page.evaluate(AXE);
      const { violations } = await page.evaluate(() => window.axe.run());
      const found = violations.map(({ id, nodes }) => `${id}: ${nodes.map((it) => it.html).join('; ')}`);
      assert.deepEqual(found, []);
      await page.screenshot({ path: `${PICTURES}/${colorScheme}-${width}.png`, fullPage: true });
      assert.deepEqual([said, asked], [[], []]);
      await close();
    });
  }
}

test('every figure is drawn and has its data, on paper too', async () => {
  const { page, said, close } = await open({ viewport: { width: 1280, height: 800 } });
  const figures = await page.$$eval('figure', (all) =>
    all.map((figure) => ({
      name: figure.querySelector('figcaption b').textContent,
      marks: figure.querySelectorAll('svg path, svg circle, svg rect').length,
      // Behind the first comma is the data, with commas of its own.
      lines: decodeURIComponent(
        figure.querySelector('a[download]').href.split(',').slice(1).join(','),
      ).split('\n').length,
    })),
  );
  const names = figures.map(({ name }) => name).join(' ');
  for (const wanted of ['Fig. 4', 'Fig. 5a', 'Fig. 6c', 'Fig. 7', 'Fig. 8']) {
    assert.ok(names.includes(wanted), `${wanted} is not among ${names}`);
  }
  // Under load and in batches this experiment has one condition each, which is no line to compare with.
  assert.ok(!names.includes('looked into'), names);
  for (const { name, marks, lines } of figures) {
    assert.ok(marks > 1 && lines > 1, `${name} has ${marks} marks and ${lines} lines`);
  }
  await page.emulateMedia({ media: 'print', colorScheme: 'dark' });
  const paper = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  assert.equal(paper, 'rgb(255, 255, 255)', 'paper is white');
  writeFileSync(`${PICTURES}/paper.pdf`, await page.pdf({ format: 'A4', printBackground: true }));
  assert.deepEqual(said, []);
  await close();
});
