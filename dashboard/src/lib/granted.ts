import type { Granted } from './document';

/** Why somebody may retrieve a resource, in words; the name of a policy comes before those of its rule. */
export function ground(granted: Granted): string {
  if (granted.by === 'policy') {
    const [of, may] = [granted.originators?.join(', '), granted.operations?.join(', ')];
    return `, rule ${granted.rule}: ${of} may ${may}`;
  }
  if (granted.by === 'role')
    return `by the role ${granted.role}, as the CSE itself (${granted.as}), which no policy restricts`;
  return GROUNDS[granted.by] ?? `by ${granted.by}`;
}

const GROUNDS: Record<string, string> = {
  'this-cse': 'as the CSE itself, which no policy restricts',
  administrator: 'as the administrator of the CSE, whom no policy restricts',
  announcer: 'as the CSE that announced it',
  entity: 'as the entity that it represents',
  registered: 'as an entity that is registered, or reads the base',
  owner: 'as its creator or custodian, as no policy governs it',
};
