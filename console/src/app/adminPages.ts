// The pages of the administration, and the role that reads each.

import { includes } from '../api/session';
import type { Role } from '../api/types';
import { words } from '../words';

const say = words.admin.tabs;

export const ADMIN_PAGES = [
  { to: '/admin/tokens', name: say.tokens, role: 'owner' },
  { to: '/admin/join', name: say.join, role: 'admin' },
  { to: '/admin/projects', name: say.projects, role: 'viewer' },
  { to: '/admin/grants', name: say.grants, role: 'admin' },
  { to: '/admin/webhooks', name: say.webhooks, role: 'viewer' },
  { to: '/admin/audit', name: say.audit, role: 'owner' },
  { to: '/admin/system', name: say.system, role: 'admin' },
] as const satisfies readonly { to: string; name: string; role: Role }[];

/** Returns whether a role may read what needs another one. An auditor reads everything. */
export function mayRead(role: Role, needed: Role): boolean {
  return role === 'auditor' || includes(role, needed);
}

/** Returns the first page that the role may read. */
export function firstAdminPage(role: Role) {
  return (ADMIN_PAGES.find((page) => mayRead(role, page.role)) ?? ADMIN_PAGES[2]).to;
}
