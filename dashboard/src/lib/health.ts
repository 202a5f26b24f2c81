import type { Mesh, Status } from './document';
import type { Rates } from './rates';
import { scaled, words } from './format';

/** Something that an operator should know, and where to look. */
export interface Cause {
  level: 'error' | 'warning';
  text: string;
  view?: string;
}

/** What is wrong with a gateway, the worst first. */
export function causes(status: Status, mesh: Mesh | null, now: Rates | undefined): Cause[] {
  const found: Cause[] = [];
  const add = (level: Cause['level'], text: string, view?: string) => {
    if (!found.some((cause) => cause.text === text)) found.push({ level, text, view });
  };
  if (status.links.length > 0 && status.planes?.running === false) {
    add('error', 'The data plane has ended: no packet passes.', 'planes');
  }
  for (const link of status.links) {
    if (!link.up && link.state !== 'ended')
      add('error', `Link ${link.name} is ${link.state} (${link.device}).`, 'overview');
  }
  for (const link of mesh?.links ?? []) {
    if (link.state !== 'up' && link.state !== 'host')
      add('warning', `Mesh link ${link.link} is ${link.state}.`, 'topology');
  }
  for (const part of status.parts) {
    for (const alarm of part.alarms ?? []) {
      if (alarm.raised > 0) {
        const of = alarm.raised > 1 ? ` (${alarm.raised})` : '';
        add(
          'warning',
          `${part.name}: ${words(alarm.name)}${of}.`,
          part.name === 'devices' ? 'devices' : undefined,
        );
      }
    }
  }
  if (status.kernel?.withdrawn)
    add('warning', 'Too many routes: the kernel forwards all packets.', 'planes');
  // A few drops are everyday life; one in a hundred is not.
  if (now && now.dropped > 1 && now.dropped > now.received / 100) {
    const worst = [...now.drops].sort((a, b) => b.rate - a.rate)[0];
    const why = worst ? `, most by ${worst.by}: ${words(worst.reason)}` : '';
    add('warning', `${scaled(now.dropped)} packets a second are dropped${why}.`, 'layers');
  }
  return found.sort((a, b) => Number(a.level === 'warning') - Number(b.level === 'warning'));
}
