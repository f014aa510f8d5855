package inspect

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/jwtbundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"

	"github.com/argomesh/argomesh/identity"
)

// Level is how bad a finding is.
type Level string

// The levels.
const (
	// Problem means that it does not work.
	Problem Level = "problem"
	// Warning means that it works, but not for long, or not as one would think.
	Warning Level = "warning"
	// Fine means that something that matters is as it should be.
	Fine Level = "ok"
)

// Reasons of findings about SVIDs and bundles, which docs/reference/errors.md explains.
const (
	ReasonSVIDExpired    = "SVIDExpired"
	ReasonSVIDExpiring   = "SVIDExpiring"
	ReasonSVIDInvalid    = "SVIDInvalid"
	ReasonBundleExpired  = "BundleExpired"
	ReasonBundleMissing  = "BundleMissing"
	ReasonJWTKeysMissing = "JWTKeysMissing"
)

// Finding is one thing that was checked.
type Finding struct {
	Level Level `json:"level"`
	// Reason names what is wrong, or what was looked for where nothing is. It is empty where it is
	// not about how an SVID or a bundle is.
	Reason string `json:"reason,omitempty"`
	// About names it: a SPIFFE ID, a trust domain, a socket.
	About string `json:"about"`
	// Says is what was found, in one line.
	Says string `json:"says"`
	// Cure is what helps, in one line. It is empty with Fine only.
	Cure string `json:"cure,omitempty"`
}

// Held is what a process of ours says of what it holds.
type Held struct {
	Findings []Finding `json:"findings"`
}

// Expectation is what a process needs of its Workload API. The zero value needs one
// X.509-SVID, whichever.
type Expectation struct {
	// SPIFFEID and Hint choose the X.509-SVID, as identity.spiffe_id and
	// identity.hint of the configuration do.
	SPIFFEID spiffeid.ID
	Hint     string
	// Peers are the trust domains of those it has to do with.
	Peers []spiffeid.TrustDomain
	// JWT says that JWT-SVIDs are needed as well: their bundles are checked, and
	// those that [Config.Audience] asked for.
	JWT bool
}

// Chosen returns the one SVID of the offer that the expectation means, and false when
// there is not exactly one.
func (e Expectation) Chosen(offer Offer) (SVID, bool) {
	chosen := e.matching(offer)
	if len(chosen) != 1 {
		return SVID{}, false
	}
	return chosen[0], true
}

func (e Expectation) matching(offer Offer) []SVID {
	return slices.DeleteFunc(slices.Clone(offer.SVIDs), func(s SVID) bool {
		return !e.SPIFFEID.IsZero() && s.id != e.SPIFFEID || e.Hint != "" && s.Hint != e.Hint
	})
}

// Diagnose returns what is to be said of offer at the time it was made, in a fixed
// order: the choice of an SVID, each SVID, each bundle, what peers need, JWT-SVIDs.
func Diagnose(offer Offer, e Expectation) []Finding {
	found := append(diagnoseChoice(offer, e), diagnoseOffered(offer, e.Peers)...)
	if e.JWT {
		found = append(found, diagnoseJWT(offer, e)...)
	}
	return found
}

// DiagnoseHeld returns what is to be said of the SVID and the bundles that a process holds at a time, and
// of the trust domains of its peers, in the order of Diagnose. Each finding has a reason. jwt is nil where the
// process needs no JWT bundles. Without an SVID there is nothing: the readiness of the process says why.
func DiagnoseHeld(x *workloadapi.X509Context, jwt *jwtbundle.Set, peers []spiffeid.TrustDomain, at time.Time) Held {
	if len(x.SVIDs) == 0 {
		return Held{}
	}
	return Held{diagnoseOffered(describe(x, jwt, at), peers)}
}

// diagnoseOffered says of each SVID, of each bundle and of each trust domain of peers how it is.
func diagnoseOffered(offer Offer, peers []spiffeid.TrustDomain) (found []Finding) {
	for _, s := range offer.SVIDs {
		found = append(found, diagnoseSVID(offer, s))
	}
	for _, b := range offer.Bundles {
		found = append(found, diagnoseBundle(offer, b)...)
	}
	for _, td := range slices.Compact(slices.SortedFunc(slices.Values(peers), spiffeid.TrustDomain.Compare)) {
		found = append(found, diagnosePeer(offer, td))
	}
	return found
}

func diagnoseChoice(offer Offer, e Expectation) []Finding {
	var offered []string
	for _, s := range offer.SVIDs {
		offered = append(offered, s.label())
	}
	list := strings.Join(offered, ", ")
	matching := e.matching(offer)
	switch {
	case len(matching) == 1:
		return []Finding{{Level: Fine, About: matching[0].SPIFFEID, Says: "is the SVID that is used"}}
	case len(matching) == 0 && !e.SPIFFEID.IsZero():
		return []Finding{{
			Level: Problem, About: e.SPIFFEID.String(), Says: "is not offered; offered: " + list,
			Cure: "register it with SPIRE for this process (agentctl identity register), or correct identity.spiffe_id and identity.hint",
		}}
	case len(matching) == 0:
		return []Finding{{
			Level: Problem, About: "hint " + e.Hint, Says: "is on no SVID; offered: " + list,
			Cure: "give the SPIRE entry that hint (agentctl identity register --hint), or correct identity.hint",
		}}
	}
	return []Finding{{
		Level: Problem, About: offer.Socket,
		Says: fmt.Sprintf("offers %d SVIDs of which any could be meant: %s", len(matching), list),
		Cure: "choose one by identity.spiffe_id or identity.hint of the configuration (--spiffe-id or --hint here); their order means nothing",
	}}
}

// label is the ID with its hint.
func (s SVID) label() string {
	if s.Hint == "" {
		return s.SPIFFEID
	}
	return fmt.Sprintf("%s (hint %q)", s.SPIFFEID, s.Hint)
}

// late is the part of an SVID's life at whose beginning SPIRE has replaced it long ago:
// it does so when about half of it is left.
const late = 3

func diagnoseSVID(offer Offer, s SVID) Finding {
	now := offer.Asked
	f := Finding{Level: Problem, Reason: ReasonSVIDInvalid, About: s.SPIFFEID}
	left := s.NotAfter.Sub(now)
	switch {
	case identity.CheckID(s.id) != nil:
		f.Says, f.Cure = identity.CheckID(s.id).Error(), "register a SPIFFE ID that a workload can have"
		return f
	case left <= 0:
		f.Reason, f.Says = ReasonSVIDExpired, fmt.Sprintf("expired %s ago, and there is no newer one", round(-left))
		f.Cure = "check that the SPIRE agent reaches its server, and the clock of this machine"
		return f
	case now.Before(s.NotBefore):
		f.Says = fmt.Sprintf("is valid only in %s", round(s.NotBefore.Sub(now)))
		f.Cure = "set the clock of this machine"
		return f
	}
	if _, _, err := x509svid.Verify(s.certs, offer.x509, x509svid.WithTime(now)); err != nil {
		f.Says = "does not stand up to the bundle of its own trust domain: " + oneLine(err)
		f.Cure = "restart the SPIRE agent: SVID and bundle are of different authorities"
		return f
	}
	if life := s.NotAfter.Sub(s.NotBefore); left < life/late {
		f.Level, f.Reason = Warning, ReasonSVIDExpiring
		f.Says = fmt.Sprintf("expires in %s of %s, and SPIRE should have replaced it at half of that", round(left),
			round(life))
		f.Cure = "check that the SPIRE agent reaches its server, and look into its log"
		return f
	}
	return Finding{
		Level: Fine, Reason: ReasonSVIDExpired, About: s.SPIFFEID, Says: fmt.Sprintf("is valid for %s more", round(left)),
	}
}

func diagnoseBundle(offer Offer, b Bundle) []Finding {
	expired := 0
	for _, root := range b.Roots {
		if !root.NotAfter.After(offer.Asked) {
			expired++
		}
	}
	cure := "federate with it again: the first bundle by hand (agentctl identity federate --bundle)"
	if b.Own {
		cure = "check the SPIRE server: it has to make a new authority"
	}
	switch {
	case len(b.Roots) == 0:
		return []Finding{{Level: Problem, Reason: ReasonBundleMissing, About: b.TrustDomain,
			Says: "has a bundle without X.509 keys, so none of its SVIDs is trusted", Cure: cure}}
	case expired == len(b.Roots):
		return []Finding{{Level: Problem, Reason: ReasonBundleExpired, About: b.TrustDomain,
			Says: "has only roots that have expired", Cure: cure}}
	case len(b.JWTKeys) == 0 && offer.JWTBundlesError == "" && !offer.noJWT:
		return []Finding{{
			Level: Warning, Reason: ReasonJWTKeysMissing, About: b.TrustDomain,
			Says: "has no JWT keys, so its JWT-SVIDs are not trusted",
			Cure: "take its bundle in the SPIFFE format, which has them; X.509-SVIDs need none",
		}}
	}
	return nil
}

func diagnosePeer(offer Offer, td spiffeid.TrustDomain) Finding {
	if slices.ContainsFunc(offer.Bundles, func(b Bundle) bool { return b.td == td && len(b.Roots) > 0 }) {
		return Finding{Level: Fine, Reason: ReasonBundleMissing, About: td.Name(), Says: "is trusted: its bundle is here"}
	}
	return Finding{
		Level: Problem, Reason: ReasonBundleMissing, About: td.Name(), Says: "is not trusted: the Workload API hands out no bundle of it",
		Cure: fmt.Sprintf("federate the SPIRE server with it (agentctl identity federate %s), and have our entry federate with it (agentctl identity register --federates-with %s)", td, td),
	}
}

func diagnoseJWT(offer Offer, e Expectation) []Finding {
	var found []Finding
	if offer.JWTBundlesError != "" {
		found = append(found, Finding{
			Level: Problem, About: offer.Socket, Says: "hands out no JWT bundles: " + offer.JWTBundlesError,
			Cure: "check the log of the SPIRE agent; method spiffe-jwt needs them",
		})
	}
	if offer.JWTSVIDsError != "" {
		found = append(found, Finding{
			Level: Problem, About: offer.Socket, Says: "hands out no JWT-SVIDs: " + offer.JWTSVIDsError,
			Cure: "check the log of the SPIRE agent, which asks its server for each; method spiffe-jwt needs them",
		})
	}
	for _, s := range offer.JWTSVIDs {
		if !e.SPIFFEID.IsZero() && s.SPIFFEID != e.SPIFFEID.String() {
			continue
		}
		f := Finding{Level: Fine, About: s.SPIFFEID,
			Says: fmt.Sprintf("has a JWT-SVID for %s, valid for %s more", strings.Join(s.Audience, ", "),
				round(s.Expires.Sub(offer.Asked)))}
		if !s.Expires.After(offer.Asked) {
			f.Level, f.Says, f.Cure = Problem, "has a JWT-SVID that has expired", "set the clock of this machine"
		}
		found = append(found, f)
	}
	return found
}

// Worst returns the worst level of found, Fine when there is nothing.
func Worst(found []Finding) Level {
	worst := Fine
	for _, f := range found {
		switch f.Level {
		case Problem:
			return Problem
		case Warning:
			worst = Warning
		}
	}
	return worst
}

func round(d time.Duration) time.Duration { return d.Round(time.Second) }

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
