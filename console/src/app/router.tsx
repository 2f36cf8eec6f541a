// The table of pages. Everything that a page shows is in its address: a link shows the same to everyone.

import type { QueryClient } from '@tanstack/react-query';
import {
  createRootRouteWithContext,
  createRoute,
  createRouter,
  lazyRouteComponent,
  redirect,
  retainSearchParams,
} from '@tanstack/react-router';

import { asApiError } from '../api/problem';
import { chooseProject } from '../api/scope';
import { firstSessionQuery, sessionQuery } from '../api/session';
import { loading } from '../lib/load';
import { text } from '../lib/search';
import { firstAdminPage } from './adminPages';
import { Crashed, NotFound } from './Failures';
import { Root } from './Root';
import { agentSearch, agentsSearch, eventsSearch, fleetSearch, stackSearch, stacksSearch } from './searches';
import { Shell } from './Shell';

/** A page that is loaded when it is opened. */
const page: typeof lazyRouteComponent = (load, name) => lazyRouteComponent(loading(load), name);

const rootRoute = createRootRouteWithContext<{ queryClient: QueryClient }>()({
  component: Root,
  notFoundComponent: NotFound,
  errorComponent: Crashed,
  validateSearch: (search: Record<string, unknown>): { project?: string } => ({ project: text(search['project']) }),
  search: { middlewares: [retainSearchParams(['project'])] },
  beforeLoad: ({ search }) => chooseProject(search.project),
});

const loginRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: '/login',
  validateSearch: (search: Record<string, unknown>): { to?: string } => ({ to: text(search['to']) }),
  component: page(() => import('../pages/Login'), 'Login'),
});

/** All pages that need a session, inside the frame with the navigation. */
const shellRoute = createRoute({
  getParentRoute: () => rootRoute,
  id: 'shell',
  component: Shell,
  /** `why` is `STACK/AGENT`: the pair that the side panel explains. */
  validateSearch: (search: Record<string, unknown>): { why?: string } => ({ why: text(search['why']) }),
  beforeLoad: async ({ context, location }) => {
    try {
      await context.queryClient.ensureQueryData(firstSessionQuery);
    } catch (thrown) {
      if (asApiError(thrown).isUnauthenticated) throw redirect({ to: '/login', search: { to: location.href } });
      throw thrown;
    }
  },
});

const fleetRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/',
  validateSearch: fleetSearch,
  component: page(() => import('../pages/Fleet'), 'Fleet'),
});

const stacksRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/stacks',
  validateSearch: stacksSearch,
  component: page(() => import('../pages/Stacks'), 'Stacks'),
});

const stackRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/stacks/$stack',
  validateSearch: stackSearch,
  component: page(() => import('../pages/stack/Stack'), 'Stack'),
});

const whyRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/stacks/$stack/agents/$agent',
  component: page(() => import('../pages/WhyPage'), 'WhyPage'),
});

const agentsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/agents',
  validateSearch: agentsSearch,
  component: page(() => import('../pages/Agents'), 'Agents'),
});

const agentRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/agents/$agent',
  validateSearch: agentSearch,
  component: page(() => import('../pages/agent/Agent'), 'Agent'),
});

const rolloutsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/rollouts',
  component: page(() => import('../pages/Rollouts'), 'Rollouts'),
});

const rolloutRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/rollouts/$sequence',
  component: page(() => import('../pages/rollout/Rollout'), 'Rollout'),
});

const approvalsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/approvals',
  component: page(() => import('../pages/Approvals'), 'Approvals'),
});

const activityRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/activity',
  validateSearch: eventsSearch,
  component: page(() => import('../pages/Activity'), 'Activity'),
});

const eventsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/events',
  validateSearch: eventsSearch,
  component: page(() => import('../pages/Events'), 'Events'),
});

const adminRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/admin',
  component: page(() => import('../pages/admin/Admin'), 'Admin'),
});

const adminIndexRoute = createRoute({
  getParentRoute: () => adminRoute,
  path: '/',
  beforeLoad: ({ context }) => {
    const session = context.queryClient.getQueryData(sessionQuery.queryKey);
    throw redirect({ to: firstAdminPage(session?.role ?? 'viewer') });
  },
});

const access = () => import('../pages/admin/access');
const projects = () => import('../pages/admin/projects');
const webhooks = () => import('../pages/admin/webhooks');

const adminRoutes = [
  adminIndexRoute,
  createRoute({ getParentRoute: () => adminRoute, path: '/tokens', component: page(access, 'Tokens') }),
  createRoute({ getParentRoute: () => adminRoute, path: '/join', component: page(access, 'JoinTokens') }),
  createRoute({
    getParentRoute: () => adminRoute,
    path: '/projects',
    component: page(projects, 'Projects'),
  }),
  createRoute({ getParentRoute: () => adminRoute, path: '/grants', component: page(projects, 'Grants') }),
  createRoute({
    getParentRoute: () => adminRoute,
    path: '/webhooks',
    component: page(webhooks, 'Webhooks'),
  }),
  createRoute({
    getParentRoute: () => adminRoute,
    path: '/webhooks/$webhook',
    component: page(webhooks, 'Deliveries'),
  }),
  createRoute({
    getParentRoute: () => adminRoute,
    path: '/audit',
    component: page(() => import('../pages/admin/Audit'), 'Audit'),
  }),
  createRoute({
    getParentRoute: () => adminRoute,
    path: '/system',
    component: page(() => import('../pages/admin/System'), 'System'),
  }),
] as const;

const tree = rootRoute.addChildren([
  loginRoute,
  shellRoute.addChildren([
    fleetRoute,
    stacksRoute,
    stackRoute,
    whyRoute,
    agentsRoute,
    agentRoute,
    rolloutsRoute,
    rolloutRoute,
    approvalsRoute,
    activityRoute,
    eventsRoute,
    adminRoute.addChildren(adminRoutes),
  ]),
]);

type History = Parameters<typeof createRouter>[0]['history'];

export function makeRouter(queryClient: QueryClient, history?: History) {
  return createRouter({ routeTree: tree, basepath: '/ui', context: { queryClient }, ...(history && { history }) });
}

declare module '@tanstack/react-router' {
  interface Register {
    router: ReturnType<typeof makeRouter>;
  }
}
