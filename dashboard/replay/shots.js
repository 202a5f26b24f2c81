// Pictures of the views, to be looked at: node replay/shots.js RECORDING OUT [VIEW…]
import { chromium } from 'playwright-core';
import { recorded, serve } from './server.js';
const [name, out, ...views] = process.argv.slice(2);
const { url, close } = await serve(await recorded(name));
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox'],
});
for (const [theme, width] of (process.env.SHOTS ?? 'light1440 dark1440')
  .split(' ')
  .map((s) => /^(\D+)(\d+)$/.exec(s).slice(1))) {
  const page = await browser.newPage({
    viewport: { width: +width, height: width < 500 ? 780 : 900 },
    colorScheme: theme,
    deviceScaleFactor: 1,
  });
  page.on(
    'console',
    (m) => ['error', 'warning'].includes(m.type()) && console.log(m.type(), m.text()),
  );
  page.on('pageerror', (e) => console.log('pageerror', e.message, e.stack));
  for (const view of views) {
    await page.goto(url + '#/' + view);
    await page.waitForTimeout(Number(process.env.WAIT ?? 4500));
    await page.screenshot({
      path: `${out}/${name}-${view.replaceAll('/', '_').replaceAll(':', '')}-${theme}-${width}.png`,
      fullPage: process.env.FULL !== undefined,
    });
  }
  await page.close();
}
await browser.close();
await close();
