// Which version a rollback restores, as the command line chooses it.

import type { BarredContent, DeploymentObject, Rollout } from '../api/types';

function isSame({ is_deletion_marker: isDeletion, checksum }: DeploymentObject, [newest]: readonly DeploymentObject[]) {
  return isDeletion || checksum === newest?.checksum;
}

/** Returns the versions with other content than the newest, newest first. */
export function candidates(versions: readonly DeploymentObject[]): DeploymentObject[] {
  return versions.filter((version) => !isSame(version, versions));
}

export type Obstacle = 'same' | 'barred' | 'incomplete';

/** What decides whether a version can be restored. */
export interface History {
  versions: readonly DeploymentObject[];
  barred: readonly BarredContent[];
  rollouts: readonly Rollout[];
}

/** Returns why the broker refuses to restore a version; nothing if it does not. */
export function obstacle(version: DeploymentObject, { versions, barred, rollouts }: History): Obstacle | undefined {
  if (isSame(version, versions)) return 'same';
  if (barred.some((bar) => bar.checksum === version.checksum)) return 'barred';
  // Without a rollout, every agent got the version at once.
  const state = rollouts.find((rollout) => rollout.sequence_id === version.sequence_id)?.state ?? 'completed';
  return state === 'completed' ? undefined : 'incomplete';
}

/** Returns the last version with other content that is not barred and that every agent got. */
export function lastGood(history: History): DeploymentObject | undefined {
  return history.versions.find((version) => obstacle(version, history) === undefined);
}
