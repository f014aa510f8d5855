package serverapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/mesh/spire"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	entryv1 "github.com/spiffe/spire-api-sdk/proto/spire/api/server/entry/v1"
	"github.com/spiffe/spire-api-sdk/proto/spire/api/types"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/internal/diff"
)

// EntryFilter selects entries. All that is set must hold; the zero value selects all.
type EntryFilter struct {
	SPIFFEID, ParentID spiffeid.ID
}

func (f EntryFilter) wire() *entryv1.ListEntriesRequest_Filter {
	if f == (EntryFilter{}) {
		return nil
	}
	filter := &entryv1.ListEntriesRequest_Filter{}
	if !f.SPIFFEID.IsZero() {
		filter.BySpiffeId = idToWire(f.SPIFFEID)
	}
	if !f.ParentID.IsZero() {
		filter.ByParentId = idToWire(f.ParentID)
	}
	return filter
}

// ListEntries calls each with every entry that filter selects, page by page, until each
// returns an error, which it then returns. An entry of someone else that cannot be
// read is passed over: it cannot be what we want.
func (c *Client) ListEntries(ctx context.Context, filter EntryFilter, each func(spire.Entry) error) error {
	const doing = "list entries"
	return pages(doing, func(token string) (string, int, error) {
		answer, err := call(ctx, c, doing, c.entries.ListEntries, &entryv1.ListEntriesRequest{
			Filter: filter.wire(), OutputMask: knownFields(), PageSize: c.pageSize, PageToken: token,
		})
		if err != nil {
			return "", 0, err
		}
		for _, m := range answer.GetEntries() {
			e, err := entryFromWire(m)
			if _, ours := spire.Owner(m.GetId()); err != nil && !ours {
				continue
			}
			if err != nil {
				return "", 0, fmt.Errorf("%s: %w", doing, err)
			}
			if err := each(e); err != nil {
				return "", 0, err
			}
		}
		return answer.GetNextPageToken(), len(answer.GetEntries()), nil
	})
}

// Observed is what a plan for one registration needs to know of a server.
type Observed struct {
	// Entries are those of the registration, and all others with a SPIFFE ID that is
	// wanted, by ID.
	Entries []spire.Entry
	// Managers says whether spire-controller-manager looks after the server.
	Managers spire.Managers
}

// Observe reads the server's entries, of which it keeps what [PlanEntries] needs for
// the registration name and desired.
func (c *Client) Observe(ctx context.Context, name identity.AgentName, desired []spire.Entry) (Observed, error) {
	wanted := make(map[spiffeid.ID]bool, len(desired))
	for _, e := range desired {
		wanted[e.SPIFFEID] = true
	}
	var seen Observed
	err := c.ListEntries(ctx, EntryFilter{}, func(e spire.Entry) error {
		seen.Managers.Add(e)
		if owner, ours := spire.Owner(e.ID); ours && owner == name || wanted[e.SPIFFEID] {
			seen.Entries = append(seen.Entries, e)
		}
		return nil
	})
	slices.SortFunc(seen.Entries, func(a, b spire.Entry) int { return strings.Compare(a.ID, b.ID) })
	return seen, err
}

// CreateEntries creates the entries, and returns for each, in their order, nil or why it
// was not created; the second result says that the server did not answer. One that is
// there already gives [ErrExists], and the entry that is there in its place.
func (c *Client) CreateEntries(ctx context.Context,
	entries []spire.Entry) (there []spire.Entry, results []error, err error) {
	const doing = "create entries"
	messages := make([]*types.Entry, len(entries))
	for i, e := range entries {
		if err := e.Check(); err != nil {
			return nil, nil, err
		}
		messages[i] = entryToWire(e)
	}
	err = batches(messages, func(some []*types.Entry) error {
		answer, err := call(ctx, c, doing, c.entries.BatchCreateEntry,
			&entryv1.BatchCreateEntryRequest{Entries: some, OutputMask: knownFields()})
		if err != nil {
			return err
		}
		if err := count(doing, len(some), len(answer.GetResults())); err != nil {
			return err
		}
		for i, r := range answer.GetResults() {
			result := itemError("entry/"+some[i].GetId(), r.GetStatus())
			var e spire.Entry
			if result == nil || errors.Is(result, spire.ErrExists) {
				var unreadable error
				if e, unreadable = entryFromWire(r.GetEntry()); unreadable != nil {
					result = unreadable
				}
			}
			there, results = append(there, e), append(results, result)
		}
		return nil
	})
	return there, results, err
}

// UpdateEntries sets of each change's entry the fields that differ, and returns for each
// change nil or why it failed.
func (c *Client) UpdateEntries(ctx context.Context, changes []diff.Change[spire.Entry]) (results []error, err error) {
	const doing = "update entries"
	for _, change := range changes {
		if err := change.Want.Check(); err != nil {
			return results, err
		}
		fields := make([]string, len(change.Fields))
		for i, d := range change.Fields {
			fields[i] = d.Path
		}
		// One call each: the mask is the call's, and each change has its own.
		answer, err := call(ctx, c, doing, c.entries.BatchUpdateEntry, &entryv1.BatchUpdateEntryRequest{
			Entries: []*types.Entry{entryToWire(change.Want)}, InputMask: setMask(&types.EntryMask{}, fields...),
			OutputMask: &types.EntryMask{},
		})
		if err != nil {
			return results, err
		}
		if err := count(doing, 1, len(answer.GetResults())); err != nil {
			return results, err
		}
		results = append(results, itemError(change.Name, answer.GetResults()[0].GetStatus()))
	}
	return results, nil
}

// DeleteEntries deletes entries of ours by their IDs, and returns for each nil or why it
// failed. It refuses all when one is not ours.
func (c *Client) DeleteEntries(ctx context.Context, entryIDs []string) (results []error, err error) {
	const doing = "delete entries"
	messages := make([]*entryv1.GetEntryRequest, len(entryIDs)) // something that has a size
	for i, id := range entryIDs {
		if _, ours := spire.Owner(id); !ours {
			return nil, fmt.Errorf("%s: %s was not made by us: %w", doing, id, spire.ErrRefused)
		}
		messages[i] = &entryv1.GetEntryRequest{Id: id}
	}
	err = batches(messages, func(some []*entryv1.GetEntryRequest) error {
		request := &entryv1.BatchDeleteEntryRequest{}
		for _, m := range some {
			request.Ids = append(request.Ids, m.GetId())
		}
		answer, err := call(ctx, c, doing, c.entries.BatchDeleteEntry, request)
		if err != nil {
			return err
		}
		if err := count(doing, len(some), len(answer.GetResults())); err != nil {
			return err
		}
		for i, r := range answer.GetResults() {
			results = append(results, itemError("entry/"+some[i].GetId(), r.GetStatus()))
		}
		return nil
	})
	return results, err
}

// ApplyEntries carries out plan and calls done with each change that is done, with
// [Update] for a create that found a difference. A plan with a refusal is not begun. One
// change that fails holds up no other but the deletes, since what failed may be what was
// to take their place; the error has all failures. What was done meanwhile, by us in an
// attempt whose answer was lost or by someone else who wants the same, is no failure.
func (c *Client) ApplyEntries(ctx context.Context, plan []diff.Change[spire.Entry],
	done func(diff.Change[spire.Entry])) error {
	if err := spire.Refusals(plan); err != nil {
		return err
	}
	updates, failed := c.applyCreates(ctx, withAction(plan, diff.Create), done)
	updates = append(withAction(plan, diff.Update), updates...)
	failed = append(failed, c.applyUpdates(ctx, updates, done)...)
	if len(failed) > 0 {
		return errors.Join(failed...)
	}
	return errors.Join(c.applyDeletes(ctx, withAction(plan, diff.Delete), done)...)
}

// applyCreates returns the creates that found an entry of ours, as updates.
func (c *Client) applyCreates(ctx context.Context, creates []diff.Change[spire.Entry],
	done func(diff.Change[spire.Entry])) (updates []diff.Change[spire.Entry], failed []error) {
	there, results, err := c.CreateEntries(ctx, wants(creates))
	if err != nil {
		failed = append(failed, err)
	}
	for i, result := range results {
		change := creates[i]
		if errors.Is(result, spire.ErrExists) {
			// As if it had been seen before.
			if there[i].ID == change.Want.ID {
				change = spire.PlanEntry(change.Want, there[i], spire.Entry{})
			} else {
				change = spire.PlanEntry(change.Want, spire.Entry{}, there[i])
			}
			result = spire.Refusals([]diff.Change[spire.Entry]{change})
		}
		switch {
		case result != nil:
			failed = append(failed, c.explainInternal(ctx, change.Want, result))
		case change.Action == diff.Update:
			updates = append(updates, change)
		default:
			done(change)
		}
	}
	return updates, failed
}

func (c *Client) applyUpdates(ctx context.Context, updates []diff.Change[spire.Entry],
	done func(diff.Change[spire.Entry])) (failed []error) {
	results, err := c.UpdateEntries(ctx, updates)
	if err != nil {
		failed = append(failed, err)
	}
	for i, result := range results {
		if result != nil {
			failed = append(failed, c.explainInternal(ctx, updates[i].Want, result))
			continue
		}
		done(updates[i])
	}
	return failed
}

func (c *Client) applyDeletes(ctx context.Context, deletes []diff.Change[spire.Entry],
	done func(diff.Change[spire.Entry])) (failed []error) {
	gone := make([]string, len(deletes))
	for i, change := range deletes {
		gone[i] = change.Have.ID
	}
	results, err := c.DeleteEntries(ctx, gone)
	if err != nil {
		failed = append(failed, err)
	}
	for i, result := range results {
		if result != nil && !errors.Is(result, spire.ErrNotFound) {
			failed = append(failed, result)
			continue
		}
		done(deletes[i])
	}
	return failed
}

// explainInternal returns result, and if that is an internal error of the server finds
// out why: an entry that federates with a trust domain it does not know will never
// succeed.
func (c *Client) explainInternal(ctx context.Context, e spire.Entry, result error) error {
	if !isInternal(result) {
		return result
	}
	for _, td := range e.FederatesWith {
		if _, err := c.FederatedBundle(ctx, td); errors.Is(err, spire.ErrNotFound) {
			return fmt.Errorf("%w: %w %s: federate with it first", result, spire.ErrNoBundle, td)
		}
	}
	return result
}

// withAction returns the changes of plan with that action.
func withAction[T any](plan []diff.Change[T], action diff.Action) []diff.Change[T] {
	return slices.DeleteFunc(slices.Clone(plan), func(c diff.Change[T]) bool { return c.Action != action })
}

func wants[T any](changes []diff.Change[T]) []T {
	out := make([]T, len(changes))
	for i, c := range changes {
		out[i] = c.Want
	}
	return out
}
