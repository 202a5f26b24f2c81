// Measures how often the topology is drawn, by software, in Debian's Chromium without a screen:
//   npm run frames [ROUNDS]
// Chromium draws 60 frames a second at the most.
import { chromium } from 'playwright-core';
import { recorded, serve } from '../replay/server.js';
import { FRAMES, frameRate, meshOf, settled } from './topology.js';

const ROUND_MS = 5000;
const rounds = Number(process.argv[2] ?? 9);
if (!Number.isInteger(rounds) || rounds < 1) {
  console.error('npm run frames [ROUNDS]: a whole number from 1 on');
  process.exit(64);
}
const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium';
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'] });
let kept = true;
for (const [nodes, links, promised] of FRAMES) {
  const { url, close } = await serve(meshOf(await recorded('mesh'), nodes, links));
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
  await page.goto(`${url}#/topology`);
  await settled(page, nodes);
  const rates = [];
  for (let round = 0; round < rounds; round += 1) rates.push(await frameRate(page, ROUND_MS));
  rates.sort((a, b) => a - b);
  const [least, median, most] = [rates[0], rates[rounds >> 1], rates[rounds - 1]].map((rate) =>
    rate.toFixed(1),
  );
  console.log(
    `${nodes} nodes, ${links} links: ${least} / ${median} / ${most} frames a second ` +
      `(minimum / median / maximum of ${rounds}); ${promised} are promised`,
  );
  kept &&= rates[rounds >> 1] >= promised;
  await page.close();
  await close();
}
await browser.close();
process.exit(kept ? 0 : 1);
