package serverapi

import (
	"context"
	"errors"
	"fmt"

	"github.com/argomesh/argomesh/mesh/spire"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	bundlev1 "github.com/spiffe/spire-api-sdk/proto/spire/api/server/bundle/v1"
	trustdomainv1 "github.com/spiffe/spire-api-sdk/proto/spire/api/server/trustdomain/v1"
	"github.com/spiffe/spire-api-sdk/proto/spire/api/types"

	"github.com/argomesh/argomesh/internal/diff"
)

// knownKeys is the mask of what we read of a bundle.
func knownKeys() *types.BundleMask {
	return &types.BundleMask{X509Authorities: true, JwtAuthorities: true, RefreshHint: true, SequenceNumber: true}
}

// Bundle returns the bundle of the server's own trust domain.
func (c *Client) Bundle(ctx context.Context) (*spiffebundle.Bundle, error) {
	const doing = "get bundle"
	answer, err := call(ctx, c, doing, c.bundles.GetBundle, &bundlev1.GetBundleRequest{OutputMask: knownKeys()})
	if err != nil {
		return nil, err
	}
	return bundleFromWire(answer, newKeyRoom())
}

// FederatedBundle returns the bundle that the server has of another trust domain. The
// error wraps [ErrNotFound] when it has none.
func (c *Client) FederatedBundle(ctx context.Context, td spiffeid.TrustDomain) (*spiffebundle.Bundle, error) {
	doing := "get bundle of " + td.Name()
	answer, err := call(ctx, c, doing, c.bundles.GetFederatedBundle,
		&bundlev1.GetFederatedBundleRequest{TrustDomain: td.Name(), OutputMask: knownKeys()})
	if err != nil {
		return nil, err
	}
	bundle, err := bundleFromWire(answer, newKeyRoom())
	if err == nil && bundle.TrustDomain() != td {
		return nil, fmt.Errorf("%s: the answer is that of %s: %w", doing, bundle.TrustDomain(), spire.ErrReply)
	}
	return bundle, err
}

// FederatedBundles returns the bundles that the server has of other trust domains.
func (c *Client) FederatedBundles(ctx context.Context) ([]*spiffebundle.Bundle, error) {
	const doing = "list federated bundles"
	var out []*spiffebundle.Bundle
	err := pages(doing, func(token string) (string, int, error) {
		answer, err := call(ctx, c, doing, c.bundles.ListFederatedBundles, &bundlev1.ListFederatedBundlesRequest{
			OutputMask: knownKeys(), PageSize: min(c.pageSize, maxBundlePage), PageToken: token,
		})
		if err != nil {
			return "", 0, err
		}
		room := newKeyRoom()
		for _, m := range answer.GetBundles() {
			b, err := bundleFromWire(m, room)
			if err != nil {
				return "", 0, fmt.Errorf("%s: %w", doing, err)
			}
			out = append(out, b)
		}
		return answer.GetNextPageToken(), len(answer.GetBundles()), nil
	})
	return out, err
}

// ApplyBundles carries out plan, of [PlanBundles], and calls done with each change that
// is done. One that fails holds up no other; the error has all failures.
func (c *Client) ApplyBundles(ctx context.Context, plan []diff.Change[*spiffebundle.Bundle],
	done func(diff.Change[*spiffebundle.Bundle])) error {
	const doing = "set federated bundles"
	if err := spire.Refusals(plan); err != nil {
		return err
	}
	var (
		changes  = append(withAction(plan, diff.Create), withAction(plan, diff.Update)...)
		messages = make([]*types.Bundle, len(changes))
		failed   []error
		at       int
	)
	for i, change := range changes {
		var err error
		if messages[i], err = bundleToWire(change.Want); err != nil {
			return err
		}
	}
	err := batches(messages, func(some []*types.Bundle) error {
		answer, err := call(ctx, c, doing, c.bundles.BatchSetFederatedBundle,
			&bundlev1.BatchSetFederatedBundleRequest{Bundle: some, OutputMask: &types.BundleMask{}})
		if err != nil {
			return err
		}
		if err := count(doing, len(some), len(answer.GetResults())); err != nil {
			return err
		}
		for _, r := range answer.GetResults() {
			change := changes[at]
			at++
			if err := itemError(change.Name, r.GetStatus()); err != nil {
				failed = append(failed, err)
				continue
			}
			done(change)
		}
		return nil
	})
	return errors.Join(append(failed, err)...)
}

// Federations returns the server's federation relationships, without bundles. Those of
// its configuration file are not among them.
func (c *Client) Federations(ctx context.Context) ([]spire.Federation, error) {
	const doing = "list federation relationships"
	var out []spire.Federation
	err := pages(doing, func(token string) (string, int, error) {
		answer, err := call(ctx, c, doing, c.domains.ListFederationRelationships,
			&trustdomainv1.ListFederationRelationshipsRequest{
				OutputMask: withoutBundle(), PageSize: c.pageSize, PageToken: token,
			})
		if err != nil {
			return "", 0, err
		}
		room := newKeyRoom()
		for _, m := range answer.GetFederationRelationships() {
			f, err := federationFromWire(m, room)
			if err != nil {
				return "", 0, fmt.Errorf("%s: %w", doing, err)
			}
			out = append(out, f)
		}
		return answer.GetNextPageToken(), len(answer.GetFederationRelationships()), nil
	})
	return out, err
}

// withoutBundle is the mask of all but the bundle, which has methods of its own.
func withoutBundle() *types.FederationRelationshipMask {
	return &types.FederationRelationshipMask{BundleEndpointUrl: true, BundleEndpointProfile: true}
}

// ApplyFederations carries out plan, of [PlanFederations], and calls done with each
// change that is done. One that fails holds up no other; the error has all failures.
func (c *Client) ApplyFederations(ctx context.Context, plan []diff.Change[spire.Federation],
	done func(diff.Change[spire.Federation])) error {
	if err := spire.Refusals(plan); err != nil {
		return err
	}
	var failed []error
	for _, change := range append(withAction(plan, diff.Create), withAction(plan, diff.Update)...) {
		// One call each: the server may fetch nothing, but a batch that does not come
		// back would take all of them along.
		if err := c.applyFederation(ctx, change); err != nil {
			failed = append(failed, err)
			continue
		}
		done(change)
	}
	return errors.Join(failed...)
}

func (c *Client) applyFederation(ctx context.Context, change diff.Change[spire.Federation]) error {
	if err := change.Want.Check(); err != nil {
		return err
	}
	message, err := federationToWire(change.Want)
	if err != nil {
		return err
	}
	if change.Action == diff.Update {
		message.TrustDomainBundle = nil
		return c.updateFederation(ctx, change.Name, message)
	}
	const doing = "create federation relationships"
	answer, err := call(ctx, c, doing, c.domains.BatchCreateFederationRelationship,
		&trustdomainv1.BatchCreateFederationRelationshipRequest{
			FederationRelationships: []*types.FederationRelationship{message}, OutputMask: withoutBundle(),
		})
	if err != nil {
		return err
	}
	if err := count(doing, 1, len(answer.GetResults())); err != nil {
		return err
	}
	err = itemError(change.Name, answer.GetResults()[0].GetStatus())
	if !isInternal(err) && !errors.Is(err, spire.ErrExists) {
		return err
	}
	// A relationship that is there gives an internal error: look whether it is the one.
	there, getErr := c.federation(ctx, change.Want.TrustDomain)
	switch {
	case getErr != nil:
		return err
	case len(spire.DiffFederations(there, change.Want)) == 0:
		return nil
	}
	return fmt.Errorf("%w: %w: another writer made it meanwhile, with other content", err, spire.ErrExists)
}

func (c *Client) federation(ctx context.Context, td spiffeid.TrustDomain) (spire.Federation, error) {
	answer, err := call(ctx, c, "get federation relationship with "+td.Name(), c.domains.GetFederationRelationship,
		&trustdomainv1.GetFederationRelationshipRequest{TrustDomain: td.Name(), OutputMask: withoutBundle()})
	if err != nil {
		return spire.Federation{}, err
	}
	return federationFromWire(answer, newKeyRoom())
}

func (c *Client) updateFederation(ctx context.Context, name string, message *types.FederationRelationship) error {
	const doing = "update federation relationships"
	answer, err := call(ctx, c, doing, c.domains.BatchUpdateFederationRelationship,
		&trustdomainv1.BatchUpdateFederationRelationshipRequest{
			FederationRelationships: []*types.FederationRelationship{message}, InputMask: withoutBundle(),
			OutputMask: withoutBundle(),
		})
	if err != nil {
		return err
	}
	if err := count(doing, 1, len(answer.GetResults())); err != nil {
		return err
	}
	return itemError(name, answer.GetResults()[0].GetStatus())
}

// DeleteFederation ends the server's relationship with td. The bundle it has stays, so
// entries that federate with td go on trusting it: [Client.DeleteBundle] takes that away.
// The error wraps [ErrNotFound] when there is none.
func (c *Client) DeleteFederation(ctx context.Context, td spiffeid.TrustDomain) error {
	const doing = "delete federation relationships"
	answer, err := call(ctx, c, doing, c.domains.BatchDeleteFederationRelationship,
		&trustdomainv1.BatchDeleteFederationRelationshipRequest{TrustDomains: []string{td.Name()}})
	if err != nil {
		return err
	}
	if err := count(doing, 1, len(answer.GetResults())); err != nil {
		return err
	}
	return itemError("federation/"+td.Name(), answer.GetResults()[0].GetStatus())
}

// DeleteBundle takes the bundle of td from the server. Entries that federate with td,
// anyone who made them, are left alone: while there are any the bundle stays, and the error
// wraps [ErrInUse]. It wraps [ErrNotFound] when there is no bundle.
func (c *Client) DeleteBundle(ctx context.Context, td spiffeid.TrustDomain) error {
	const doing = "delete federated bundles"
	answer, err := call(ctx, c, doing, c.bundles.BatchDeleteFederatedBundle, &bundlev1.BatchDeleteFederatedBundleRequest{
		TrustDomains: []string{td.Name()}, Mode: bundlev1.BatchDeleteFederatedBundleRequest_RESTRICT,
	})
	if err != nil {
		return err
	}
	if err := count(doing, 1, len(answer.GetResults())); err != nil {
		return err
	}
	return itemError("bundle/"+td.Name(), answer.GetResults()[0].GetStatus())
}

// RefreshBundle has the server poll the bundle of td now.
func (c *Client) RefreshBundle(ctx context.Context, td spiffeid.TrustDomain) error {
	_, err := call(ctx, c, "refresh bundle of "+td.Name(), c.domains.RefreshBundle,
		&trustdomainv1.RefreshBundleRequest{TrustDomain: td.Name()})
	return err
}
