// Opens the committed page in a browser, without any package: `node dashboard/test/smoke.js`.
import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { recorded, serve } from '../replay/server.js';

const TIME_MS = 60_000;
// What each view shows of its recording.
const EXPECTED = [
  ['router', 'overview', ['Healthy', 'fd00:1::1/64', 'not configured']],
  ['router', 'network', ['198.51.100.0/24', '10.10.2.2 by wan', 'permanent', 'Add route']],
  ['router', 'configuration', ['File against running', 'History', 'reload', 'in force', 'Compare']],
  ['translation', 'translation', ['http_to_smtp', 'Trace']],
  ['translation', 'lab', ['99 % predicted', 'learns', 'The default experiment', 'night.html']],
  ['mesh', 'topology', ['d2:1b:02:42:01:8b', '8 nodes, 9 links']],
  ['health', 'devices', ['phd-0247000100000001', 'blood-pressure']],
];

/** A browser that is spoken to over two pipes (the DevTools protocol; messages end with a NUL). */
class Browser {
  #waiting = new Map();
  #last = 0;
  problems = [];

  constructor(profile) {
    const options = ['--headless=new', '--no-sandbox', '--disable-gpu', '--remote-debugging-pipe'];
    this.process = spawn('chromium', [...options, `--user-data-dir=${profile}`], {
      stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'],
    });
    let rest = '';
    this.process.stdio[4].on('data', (octets) => {
      const messages = (rest + octets).split('\0');
      rest = messages.pop();
      for (const message of messages) this.#take(JSON.parse(message));
    });
    this.process.on('exit', () => {
      for (const { reject } of this.#waiting.values()) reject(new Error('the browser has ended'));
    });
  }

  #take({ id, result, error, method, params }) {
    const waits = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (waits && error) waits.reject(new Error(error.message));
    else waits?.resolve(result);
    if (method === 'Runtime.exceptionThrown') {
      this.problems.push(params.exceptionDetails.exception?.description ?? 'an exception');
    }
    if (method === 'Log.entryAdded' && params.entry.level === 'error') {
      this.problems.push(`${params.entry.text} ${params.entry.url ?? ''}`);
    }
  }

  ask(method, params = {}, sessionId = undefined) {
    const id = (this.#last += 1);
    this.process.stdio[3].write(JSON.stringify({ id, method, params, sessionId }) + '\0');
    return new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject }));
  }

  /** Opens an address and waits until its text has all of `texts`; returns those that it lacks. */
  async shows(url, texts) {
    const { targetId } = await this.ask('Target.createTarget', { url: 'about:blank' });
    const { sessionId } = await this.ask('Target.attachToTarget', { targetId, flatten: true });
    const ask = (method, params) => this.ask(method, params, sessionId);
    await ask('Runtime.enable');
    await ask('Log.enable');
    await ask('Page.navigate', { url });
    let lacks = texts;
    for (const end = Date.now() + TIME_MS / EXPECTED.length; lacks.length && Date.now() < end;) {
      await pause(200);
      const expression = 'document.body?.innerText ?? ""';
      const { result } = await ask('Runtime.evaluate', { expression });
      lacks = texts.filter((text) => !String(result.value).includes(text));
    }
    await ask('Page.close');
    return lacks;
  }
}

const profile = await mkdtemp(join(tmpdir(), 'gatewright-smoke-'));
const browser = new Browser(profile);
const failures = [];
try {
  for (const [recording, view, texts] of EXPECTED) {
    const { url, close } = await serve(await recorded(recording));
    const lacks = await browser.shows(`${url}#/${view}`, texts);
    failures.push(...lacks.map((text) => `${recording}, ${view}: \`${text}\` is not shown`));
    await close();
  }
} catch (error) {
  failures.push(String(error));
}
// The stream of each recording ends with it; that is no fault of the page.
failures.push(...browser.problems.filter((text) => !text.includes('ERR_')));
const ended = new Promise((resolve) => browser.process.on('exit', resolve));
browser.process.kill();
await ended;
await rm(profile, { recursive: true, force: true, maxRetries: 5 });
for (const failure of failures) console.error(failure);
console.log(`${EXPECTED.length} views in a browser, ${failures.length} failures`);
process.exit(failures.length ? 1 : 0);
