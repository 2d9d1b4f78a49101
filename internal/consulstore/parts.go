package consulstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/hashicorp/consul/api"

	"github.com/coordsvc/coordsvc/internal/service"
)

// partSize is how much of a large value goes into one request, in bytes before base64.
const partSize = 360 << 10

// errPartsGone: a manifest refers to parts that are not there, most likely because the record was replaced meanwhile.
var errPartsGone = errors.New("the value's parts are gone")

func ownersKey(id string) string         { return partsDir + id + "/keys" }
func partKey(id string, n uint64) string { return fmt.Sprintf("%s%s/%06d", partsDir, id, n) }

// blob is the large values of one transaction, joined.
type blob struct {
	keys   []string
	values []byte
}

// bodySize bounds from above what an operation takes in a request.
func bodySize(key string, value int) int {
	const overhead = 256
	return overhead + len(key) + (value+2)/3*4
}

// shrink moves the largest values to a blob until the rest fits into one request, and leaves manifests in their place.
// Every value is in a request twice: in its record and in the change record.
func shrink(intents []*intent, id string) (blob, error) {
	size, total := 0, 0
	puts := make([]*sealedPut, 0, len(intents))
	for _, in := range intents {
		size += 2 * bodySize(dataKey(in.key), 0)
		if in.put != nil {
			size += 2 * bodySize("", len(in.put.sealed))
			total += len(in.put.sealed)
			puts = append(puts, in.put)
		}
	}
	if total > maxValues {
		return blob{}, fmt.Errorf("%d bytes in one transaction, %d are the most: %w", total, maxValues, service.ErrTooLarge)
	}
	slices.SortStableFunc(puts, func(a, b *sealedPut) int { return cmp.Compare(len(b.sealed), len(a.sealed)) })
	var moved blob
	for _, p := range puts {
		if size <= maxBody {
			return moved, nil
		}
		before := len(p.sealed)
		moved.take(p, id)
		size += 2 * (bodySize("", len(p.sealed)) - bodySize("", before))
	}
	if size > maxBody {
		return blob{}, fmt.Errorf("the keys alone take %d bytes, %d are the most: %w", size, maxBody, service.ErrTooLarge)
	}
	return moved, nil
}

// take moves one value.
func (b *blob) take(p *sealedPut, id string) {
	value := p.sealed[headerSize:]
	m := manifest{id: id, offset: uint64(len(b.values)), length: uint64(len(value)), sum: crc32.Checksum(value, castagnoli())}
	b.keys = append(b.keys, p.key)
	b.values = append(b.values, value...)
	p.sealed = seal(dataKey(p.key), kindManifest, id, m.encode())
}

// writeParts stores a blob and returns the index of the key that its parts hang on. That key is
// written first and checked by the transaction that refers to the parts: as long as it is there, so are they.
func (s *Store) writeParts(ctx context.Context, id string, b blob) (uint64, error) {
	if len(b.keys) == 0 {
		return 0, nil
	}
	key := ownersKey(id)
	index, err := s.create(ctx, key, seal(key, kindOwners, id, encodeKeys(nil, b.keys)))
	if err != nil {
		return 0, fmt.Errorf("write parts: %w", err)
	}
	n := uint64(0)
	for part := range slices.Chunk(b.values, partSize) {
		key := partKey(id, n)
		if _, err := s.create(ctx, key, seal(key, kindPart, id, part)); err != nil {
			return 0, fmt.Errorf("write parts: %w", err)
		}
		n++
	}
	return index, nil
}

// create writes a key that is not there yet.
func (s *Store) create(ctx context.Context, key string, sealed []byte) (uint64, error) {
	results, failed, err := s.write(ctx, api.TxnOps{kvOp(api.KVTxnOp{Verb: api.KVCAS, Key: s.options.Root + key, Value: sealed})})
	switch {
	case err != nil:
		return 0, err
	case len(failed) > 0:
		return 0, s.refusal(failed)
	case len(results) != 1 || results[0].KV == nil:
		return 0, s.denied("read", "")
	}
	return results[0].KV.ModifyIndex, nil
}

// blobs keeps what was read of parts while many records are read: those of one transaction share them.
type blobs map[string][]byte

// value is what a record's stored bytes stand for.
func (s *Store) value(ctx context.Context, seen blobs, key string, sealed []byte) ([]byte, error) {
	k, payload, err := unseal(key, sealed)
	if err != nil {
		return nil, err
	}
	switch k {
	case kindValue:
		return payload, nil
	case kindManifest:
		m, err := decodeManifest(key, payload)
		if err != nil {
			return nil, err
		}
		return s.assemble(ctx, seen, key, m)
	default:
		return nil, damaged(key, "it is of kind %q, which no record is", k)
	}
}

// assemble reads a large value.
func (s *Store) assemble(ctx context.Context, seen blobs, key string, m manifest) ([]byte, error) {
	value := make([]byte, 0, m.length)
	for at := m.offset; at < m.offset+m.length; {
		part, err := s.part(ctx, seen, partKey(m.id, at/partSize))
		if err != nil {
			return nil, err
		}
		begin := at % partSize
		if begin >= uint64(len(part)) {
			return nil, damaged(key, "a part of it is too short")
		}
		part = part[begin:min(uint64(len(part)), begin+m.offset+m.length-at)]
		value = append(value, part...)
		at += uint64(len(part))
	}
	if crc32.Checksum(value, castagnoli()) != m.sum {
		return nil, damaged(key, "the checksum of its parts does not match")
	}
	return value, nil
}

func (s *Store) part(ctx context.Context, seen blobs, key string) ([]byte, error) {
	if part, ok := seen[key]; ok {
		return part, nil
	}
	results, err := s.readKeys(ctx, key)
	if err != nil {
		return nil, err
	}
	if results[0].index == 0 {
		return nil, fmt.Errorf("%w: %s", errPartsGone, key)
	}
	part, err := unsealAs(key, kindPart, results[0].value)
	if err != nil {
		return nil, err
	}
	seen[key] = part
	return part, nil
}
