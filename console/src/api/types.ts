// Short names of the generated types.

import type { components, operations } from './openapi.gen';

type Schemas = components['schemas'];

export type Agent = Schemas['Agent'];
export type AgentStack = Schemas['AgentStack'];
export type AgentWhy = Schemas['AgentWhy'];
export type ApiToken = Schemas['ApiToken'];
export type AuditEntry = Schemas['AuditEntry'];
export type BarredContent = Schemas['BarredContent'];
export type Broken = Schemas['Broken'];
export type Delivery = Schemas['Delivery'];
export type DeploymentObject = Schemas['DeploymentObject'];
export type Diff = Schemas['Diff'];
export type ErrorGroup = Schemas['ErrorGroup'];
export type Event = Schemas['Event'];
export type FleetCell = Schemas['FleetCell'];
export type FleetChanges = Schemas['FleetChanges'];
export type FleetColumn = Schemas['FleetColumn'];
export type FleetMatrix = Schemas['FleetMatrix'];
export type FleetRow = Schemas['FleetRow'];
export type FleetSummary = Schemas['FleetSummary'];
export type Grant = Schemas['ProjectGrant'];
export type Hop = Schemas['Hop'];
export type Hops = Schemas['Hops'];
export type JoinToken = Schemas['JoinTokenInfo'];
export type NextCommand = Schemas['NextCommand'];
export type Pending = Schemas['Pending'];
export type Presence = Schemas['Presence'];
export type Problem = Schemas['Problem'];
export type Project = Schemas['Project'];
export type Role = Schemas['Role'];
export type Rollout = Schemas['Rollout'];
export type RolloutDecision = Schemas['RolloutDecision'];
export type RolloutState = Schemas['RolloutState'];
export type SearchResults = Schemas['SearchResults'];
export type SequenceHops = Schemas['SequenceHops'];
export type Session = Schemas['SessionDetails'];
export type Stack = Schemas['Stack'];
export type StackStatus = Schemas['StackStatus'];
export type StackSummary = Schemas['StackSummary'];
export type StackWhy = Schemas['StackWhy'];
export type State = Schemas['State'];
export type StopReason = Schemas['StopReason'];
export type System = Schemas['System'];
export type Suspension = Schemas['Suspension'];
export type Target = Schemas['Target'];
export type Webhook = Schemas['Webhook'];

export type MatrixFilter = NonNullable<operations['fleet_matrix']['parameters']['query']>;
export type StatusQuery = NonNullable<operations['stack_status']['parameters']['query']>;
export type StatusSort = NonNullable<StatusQuery['sort']>;

export interface Page<T> {
  items: T[];
  next?: string | null;
  total?: number | null;
}
