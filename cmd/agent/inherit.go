package main

import (
	"context"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/backends/policy"
	"github.com/argomesh/argomesh/stream"
)

// inherit is what an owner's list of operations means: one that was written before there
// was override, when sync was all of it, counts as with it until it is changed. stored is
// what the spoke is to store of that from now on.
func (k historyRecord) inherit(configured []string) (operations []string, stored string) {
	sorted := slices.Sorted(slices.Values(configured))
	text := strings.Join(slices.Compact(sorted), ",")
	if !policy.LacksOverride(configured) || k.operations != nil && *k.operations != text {
		return configured, ""
	}
	return policy.WithOverride(configured), text
}

// policy is the owner's, by what the spoke keeps. It tries until ctx is done, and then
// returns false.
func (m *historyStore) policy(ctx context.Context, mode stream.Mode,
	configured policy.Policy) (policy policy.Policy, known bool) {
	err := m.retry(ctx, "cannot read whether policy.operations is older than override, retrying", func() (final bool, err error) {
		now, version, err := m.read(ctx)
		if err != nil || version == "" || mode != stream.Managed {
			return false, err // where nothing is kept no list is of before
		}
		operations, stored := now.inherit(configured.Operations)
		if now.operations == nil || *now.operations != stored {
			now.operations = &stored
			if err := m.write(ctx, now, version); err != nil {
				return false, err
			}
		}
		if stored != "" {
			m.log.Warn().Strs("operations", configured.Operations).
				Msg("policy.operations was set under a release without override, which it allows until it is changed: list override, or change the list, to decide")
		}
		configured.Operations = operations
		return true, nil
	})
	return configured, err == nil
}
