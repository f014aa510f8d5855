package spiretest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	entryv1 "github.com/spiffe/spire-api-sdk/proto/spire/api/server/entry/v1"
	"github.com/spiffe/spire-api-sdk/proto/spire/api/types"
)

type entryService struct {
	entryv1.UnimplementedEntryServer
	s *Server
}

// ListEntries implements entryv1.EntryServer.
func (e *entryService) ListEntries(_ context.Context,
	req *entryv1.ListEntriesRequest) (*entryv1.ListEntriesResponse, error) {
	filter := req.GetFilter()
	if m := filter.GetBySelectors(); m != nil && len(m.GetSelectors()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "malformed filter: empty selector set")
	}
	if m := filter.GetByFederatesWith(); m != nil && len(m.GetTrustDomains()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "malformed filter: empty trust domain set")
	}
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	var selected []*types.Entry
	for _, entry := range e.s.entries {
		if selects(filter, entry) {
			selected = append(selected, entry)
		}
	}
	from, to, next, err := page(len(selected), req.GetPageToken(), req.GetPageSize())
	if err != nil {
		return nil, err
	}
	resp := &entryv1.ListEntriesResponse{NextPageToken: next}
	for _, entry := range selected[from:to] {
		resp.Entries = append(resp.Entries, maskEntry(entry, req.GetOutputMask()))
	}
	return resp, nil
}

func selects(f *entryv1.ListEntriesRequest_Filter, e *types.Entry) bool {
	return (f.GetBySpiffeId() == nil || proto.Equal(f.GetBySpiffeId(), e.GetSpiffeId())) &&
		(f.GetByParentId() == nil || proto.Equal(f.GetByParentId(), e.GetParentId())) &&
		(f.GetByHint() == nil || f.GetByHint().GetValue() == e.GetHint()) &&
		(f.GetByDownstream() == nil || f.GetByDownstream().GetValue() == e.GetDownstream())
}

// GetEntry implements entryv1.EntryServer.
func (e *entryService) GetEntry(_ context.Context, req *entryv1.GetEntryRequest) (*types.Entry, error) {
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	if i := e.s.indexOf(req.GetId()); i >= 0 {
		return maskEntry(e.s.entries[i], req.GetOutputMask()), nil
	}
	return nil, status.Error(codes.NotFound, "entry not found")
}

// BatchCreateEntry implements entryv1.EntryServer.
func (e *entryService) BatchCreateEntry(_ context.Context,
	req *entryv1.BatchCreateEntryRequest) (*entryv1.BatchCreateEntryResponse, error) {
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	resp := &entryv1.BatchCreateEntryResponse{}
	for _, entry := range req.GetEntries() {
		st, there := e.s.createEntry(entry)
		result := &entryv1.BatchCreateEntryResponse_Result{Status: st}
		if there != nil {
			result.Entry = maskEntry(there, req.GetOutputMask())
		}
		resp.Results = append(resp.Results, result)
	}
	return resp, nil
}

// BatchUpdateEntry implements entryv1.EntryServer.
func (e *entryService) BatchUpdateEntry(_ context.Context,
	req *entryv1.BatchUpdateEntryRequest) (*entryv1.BatchUpdateEntryResponse, error) {
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	resp := &entryv1.BatchUpdateEntryResponse{}
	for _, entry := range req.GetEntries() {
		st, there := e.s.updateEntry(entry, req.GetInputMask())
		result := &entryv1.BatchUpdateEntryResponse_Result{Status: st}
		if there != nil {
			result.Entry = maskEntry(there, req.GetOutputMask())
		}
		resp.Results = append(resp.Results, result)
	}
	return resp, nil
}

// BatchDeleteEntry implements entryv1.EntryServer.
func (e *entryService) BatchDeleteEntry(_ context.Context,
	req *entryv1.BatchDeleteEntryRequest) (*entryv1.BatchDeleteEntryResponse, error) {
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	resp := &entryv1.BatchDeleteEntryResponse{}
	for _, id := range req.GetIds() {
		st := ok()
		switch i := e.s.indexOf(id); {
		case id == "":
			st = failed(codes.InvalidArgument, "missing entry ID")
		case i < 0:
			st = failed(codes.NotFound, "entry not found")
		default:
			e.s.entries = slices.Delete(e.s.entries, i, i+1)
		}
		resp.Results = append(resp.Results, &entryv1.BatchDeleteEntryResponse_Result{Status: st, Id: id})
	}
	return resp, nil
}

func (s *Server) indexOf(id string) int {
	return slices.IndexFunc(s.entries, func(e *types.Entry) bool { return e.GetId() == id })
}

// createEntry returns the status, and the entry that is there now. The caller holds mu.
func (s *Server) createEntry(in *types.Entry) (*types.Status, *types.Entry) {
	e := proto.CloneOf(in)
	if st := s.checkEntry(e); st != nil {
		return st, nil
	}
	for _, there := range s.entries {
		if there.GetId() == e.GetId() || alike(there, e) {
			return failed(codes.AlreadyExists, "similar entry already exists"), there
		}
	}
	s.created++
	if e.GetId() == "" {
		e.Id = fmt.Sprintf("%08x-0000-4000-8000-%012x", s.created, s.created)
	}
	e.CreatedAt, e.RevisionNumber = int64(s.created), 0
	s.entries = append(s.entries, e)
	return ok(), e
}

func (s *Server) updateEntry(in *types.Entry, mask *types.EntryMask) (*types.Status, *types.Entry) {
	i := s.indexOf(in.GetId())
	if i < 0 {
		return failed(codes.NotFound, "failed to update entry: record not found"), nil
	}
	old := s.entries[i]
	next := proto.CloneOf(in)
	if mask != nil {
		next = proto.CloneOf(old)
		overlay(next, in, mask)
	}
	if st := s.checkEntry(next); st != nil {
		return st, nil
	}
	next.CreatedAt, next.RevisionNumber = old.GetCreatedAt(), old.GetRevisionNumber()+1
	s.entries[i] = next
	return ok(), next
}

// checkEntry returns nil when the server would store e, and makes trust domain IDs
// names. The caller holds mu.
func (s *Server) checkEntry(e *types.Entry) *types.Status {
	invalid := func(what string) *types.Status {
		return failed(codes.InvalidArgument, "failed to convert entry: %s", what)
	}
	switch {
	case len(e.GetId()) > 255 || strings.ContainsFunc(e.GetId(), func(r rune) bool {
		return !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_", r)
	}):
		return invalid("invalid entry ID")
	case !s.member(e.GetSpiffeId()) || strings.HasPrefix(e.GetSpiffeId().GetPath()+"/", "/spire/"):
		return invalid("invalid spiffe ID")
	case !s.member(e.GetParentId()):
		return invalid("invalid parent ID")
	case len(e.GetSelectors()) == 0:
		return invalid("selector list is empty")
	case e.GetX509SvidTtl() < 0 || e.GetJwtSvidTtl() < 0:
		return invalid("negative TTL")
	case len([]rune(e.GetHint())) > 1024:
		return invalid("hint is too long, max length is 1024 characters")
	}
	for _, sel := range e.GetSelectors() {
		if sel.GetType() == "" || sel.GetValue() == "" || strings.Contains(sel.GetType(), ":") {
			return invalid("invalid selector")
		}
		if e.GetStoreSvid() && sel.GetType() != e.GetSelectors()[0].GetType() {
			return invalid("selector types must be the same when store SVID is enabled")
		}
	}
	for _, name := range e.GetDnsNames() {
		labels := strings.Split(name, ".")
		if slices.Contains(labels, "") || slices.Contains(labels[1:], "*") {
			return invalid("invalid DNS name")
		}
	}
	for i, name := range e.GetFederatesWith() {
		td, err := spiffeid.TrustDomainFromString(name)
		if err != nil {
			return invalid("invalid federated trust domain")
		}
		if s.federated[td.Name()] == nil {
			return failed(codes.Internal, "failed to create entry: unable to find federated bundle %q", td.Name())
		}
		e.FederatesWith[i] = td.Name()
	}
	return nil
}

// member tells whether id is one of the own trust domain, with a path.
func (s *Server) member(id *types.SPIFFEID) bool {
	_, err := spiffeid.FromPath(s.trustDomain, id.GetPath())
	return err == nil && id.GetPath() != "" && id.GetTrustDomain() == s.trustDomain.Name()
}

// alike tells what the server calls similar.
func alike(a, b *types.Entry) bool {
	key := func(e *types.Entry) string {
		var selectors []string
		for _, sel := range e.GetSelectors() {
			selectors = append(selectors, sel.GetType()+":"+sel.GetValue())
		}
		slices.Sort(selectors)
		return fmt.Sprintf("%v %v %q", e.GetSpiffeId(), e.GetParentId(), slices.Compact(selectors))
	}
	return key(a) == key(b)
}

// maskEntry returns what mask lets through of e: all without one, and the ID always.
func maskEntry(e *types.Entry, mask *types.EntryMask) *types.Entry {
	if mask == nil {
		return proto.CloneOf(e)
	}
	out := &types.Entry{Id: e.GetId()}
	overlay(out, e, mask)
	return out
}

// overlay copies the fields of src that mask selects, by number, to dst.
func overlay(dst, src, mask proto.Message) {
	from := proto.Clone(src).ProtoReflect() // so that dst shares nothing with src
	to := dst.ProtoReflect()
	mask.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool { // only what is true
		field := from.Descriptor().Fields().ByNumber(f.Number())
		to.Clear(field)
		if from.Has(field) {
			to.Set(field, from.Get(field))
		}
		return true
	})
}
