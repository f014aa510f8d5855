// Package spire registers identities with SPIRE: who gets which SPIFFE ID, and whose
// trust domains are federated. It knows two ways to the same end. Either objects of
// spire-controller-manager are made ([Registration.Objects], [Federation.Object]), to
// be kept in git or applied to a Kubernetes API; or entries and federation
// relationships are written to the SPIRE server itself by package serverapi.
//
// What has to change is decided by pure functions ([PlanEntries], [PlanObjects],
// [PlanFederations]) from what is wanted and what is there; the same changes are printed
// by a dry run and carried out by a client of serverapi, or by anyone who has a client of
// the Kubernetes API. Nothing here does more than compute.
//
// It touches only what it made. An entry of ours is known by its ID
// ([EntryID]), an object by its labels ([ManagedByLabel]). A federation relationship
// can carry no mark, so one that is there and says something else is never changed
// unless the caller insists. Where spire-controller-manager looks after a server, it
// deletes what no object of its own declares; [Managers] notices that.
//
// It does not serve the Workload API and does not check peers: that is
// identity/workload and package fleet.
//
//	r := spire.Registration{
//		Name: edge1, IDs: []spiffeid.ID{id},
//		ParentIDs: []spiffeid.ID{node}, Selectors: []spire.Selector{{Type: "k8s", Value: "ns:argocd"}},
//	}
//	entries, err := r.Entries()
//	changes := spire.PlanEntries(edge1, entries, observed.Entries) // of serverapi.Client
package spire

import "errors"

// The kinds of error of this package. Test for them with errors.Is.
var (
	// ErrInvalid says that what is asked for breaks a rule of SPIRE or SPIFFE. It was
	// not sent, or the server refused it.
	ErrInvalid = errors.New("invalid")
	// ErrExists says that what was to be created is there already.
	ErrExists = errors.New("exists already")
	// ErrNotFound says that what was to be changed or deleted is not there.
	ErrNotFound = errors.New("not found")
	// ErrDenied says that the caller is no administrator of the SPIRE server.
	ErrDenied = errors.New("not an administrator of the spire server")
	// ErrNoBundle says that an entry federates with a trust domain whose bundle the
	// server does not have. Federate with it first.
	ErrNoBundle = errors.New("the spire server has no bundle of the trust domain")
	// ErrInUse says that a bundle stays since entries federate with its trust domain.
	ErrInUse = errors.New("entries federate with the trust domain")
	// ErrUnavailable says that the server was not reached or did not answer in time.
	// Whether it did what was asked is not known; asking again is safe.
	ErrUnavailable = errors.New("the spire server is not available")
	// ErrReply says that the server's answer cannot be what was asked for.
	ErrReply = errors.New("unexpected answer of the spire server")
	// ErrRefused says that a plan holds a change that must not be carried out.
	ErrRefused = errors.New("refused")
)
