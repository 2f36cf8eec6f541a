// Webhooks, and what was delivered to them.

import { useInfiniteQuery } from '@tanstack/react-query';
import { Link, useNavigate, useParams } from '@tanstack/react-router';

import { deliveriesQuery, webhooksQuery } from '../../api/admin';
import type { Delivery, Webhook } from '../../api/types';
import { number, orDash } from '../../lib/format';
import { views } from '../../lib/views';
import { When } from '../../ui/Age';
import type { Column } from '../../ui/Grid';
import { List } from '../../ui/List';
import { Page } from '../../ui/Page';
import { Mark } from '../../ui/StateMark';
import { words } from '../../words';
import lists from '../lists.module.css';
import { CreateWebhook, Resend, RotateWebhookSecret, WebhookRowActs } from './acts/webhooks';

const say = words.admin;

const webhookColumns: readonly Column<Webhook>[] = [
  {
    name: words.columns.name,
    cell: ({ name }) => (
      <Link to="/admin/webhooks/$webhook" params={{ webhook: name }} tabIndex={-1}>
        {name}
      </Link>
    ),
  },
  { name: say.url, cell: ({ url }) => url },
  { name: say.format, cell: ({ format }) => format },
  { name: say.events, cell: ({ filter }) => filter.events?.join(', ') ?? say.allEvents },
  {
    name: words.columns.state,
    cell: ({ enabled, disabled_because: why }) => (
      <Mark tone={enabled ? 'good' : 'warn'} glyph={enabled ? '✔' : '■'}>
        {enabled ? say.enabled : say.disabled(orDash(why))}
      </Mark>
    ),
  },
  {
    name: words.adminActs.column,
    cell: (webhook, isCurrent) => <WebhookRowActs webhook={webhook} isCurrent={isCurrent} />,
  },
];

export function Webhooks() {
  const query = useInfiniteQuery(webhooksQuery());
  const navigate = useNavigate();
  const [text, command] = say.empty.webhooks;
  return (
    <Page title={say.tabs.webhooks} facts={<CreateWebhook />} view={views.webhooks()}>
      <List
        query={query}
        label={say.tabs.webhooks}
        className={lists.webhooks}
        columns={webhookColumns}
        rowKey={(webhook) => webhook.id}
        onOpen={({ name: webhook }) => void navigate({ to: '/admin/webhooks/$webhook', params: { webhook } })}
        empty={{ text, command }}
      />
    </Page>
  );
}

const STATES = { pending: ['busy', '…'], delivered: ['good', '✔'], dead: ['bad', '✖'] } as const;

const deliveryColumns = (webhook: string): Column<Delivery>[] => [
  { name: words.columns.time, cell: ({ created_at: at }) => <When at={at} /> },
  { name: words.columns.event, cell: ({ event }) => event },
  {
    name: words.columns.state,
    cell: ({ state }) => (
      <Mark tone={STATES[state][0]} glyph={STATES[state][1]}>
        {state}
      </Mark>
    ),
  },
  { name: say.attempts, isNumber: true, cell: ({ attempts }) => number(attempts) },
  {
    name: say.answer,
    cell: ({ last_attempt: last }) => (last == null ? '' : [last.status, last.error, last.answer].filter(Boolean).join(' ')),
  },
  {
    name: words.adminActs.column,
    cell: (delivery, isCurrent) => <Resend webhook={webhook} delivery={delivery} isCurrent={isCurrent} />,
  },
];

export function Deliveries() {
  const { webhook } = useParams({ from: '/shell/admin/webhooks/$webhook' });
  const query = useInfiniteQuery(deliveriesQuery(webhook));
  const [text, command] = say.empty.deliveries;
  return (
    <Page title={say.deliveries(webhook)} facts={<RotateWebhookSecret webhook={webhook} />} view={views.deliveries(webhook)}>
      <List
        query={query}
        label={say.deliveries(webhook)}
        className={lists.deliveries}
        columns={deliveryColumns(webhook)}
        rowKey={(delivery) => delivery.id}
        empty={{ text, command }}
      />
    </Page>
  );
}
