package standalone

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"

	"github.com/coordsvc/coordsvc/internal/service"
)

// The layout of a bbolt file, as far as verifying needs it. bbolt writes in the machine's byte order.
const (
	pageHeaderSize = 16
	elementSize    = 16
	bucketHeader   = 16
	metaSize       = 64
	metaMagic      = 0xED0CDAED
	metaVersion    = 2

	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10

	bucketElement = 0x01
	noFreelist    = ^uint64(0)
	manyPages     = 0xFFFF
	minPageSize   = 1 << 10
	maxPageSize   = 1 << 24
	maxTreeDepth  = 64
)

// pageMeta is one of the two meta pages.
type pageMeta struct {
	pageSize uint64
	root     uint64
	freelist uint64
	// highWater is the first page id never used.
	highWater uint64
	txid      uint64
}

// verifier walks a bbolt file through bounds-checked reads. bbolt's own check follows whatever a
// damaged page says, in the mapped file and in a goroutine of its own, where neither a fault nor endless
// recursion can be contained.
type verifier struct {
	file io.ReaderAt
	size uint64
	meta pageMeta
	// reached marks the pages in use; every other page below the high-water mark must be on the freelist.
	reached map[uint64]bool

	found    state
	stored   state
	hasState bool
	records  bool
}

// damage describes what is wrong with a file; it is a service.ErrCorrupt.
func damage(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, service.ErrCorrupt)...)
}

// verifyFile checks every page and every record of a database of the given size.
func verifyFile(file io.ReaderAt, size int64) (state, error) {
	v := &verifier{file: file, size: uint64(max(size, 0)), reached: map[uint64]bool{0: true, 1: true}}
	if err := v.readMetas(); err != nil {
		return state{}, err
	}
	if err := v.walk(v.meta.root, bounds{}, 0, &keyOrder{}, v.visitRoot); err != nil {
		return state{}, err
	}
	if err := v.checkFreelist(); err != nil {
		return state{}, err
	}
	return v.stored, v.checkState()
}

// readMetas finds the two meta pages. Both must be sound: the meta fits in one disk sector, so a crash does not tear it,
// and falling back to the older one would silently forget acknowledged writes.
func (v *verifier) readMetas() error {
	first, err := v.readMeta(0)
	if err != nil {
		return damage("meta page 0: %v", err)
	}
	second, err := v.readMeta(first.pageSize)
	if err != nil {
		return damage("meta page 1: %v", err)
	}
	if first.pageSize != second.pageSize {
		return damage("the meta pages disagree on the page size (%d and %d)", first.pageSize, second.pageSize)
	}
	v.meta = first
	if second.txid > first.txid {
		v.meta = second
	}
	if v.meta.highWater > v.size/v.meta.pageSize {
		return damage("the file is cut short: %d bytes, but %d pages of %d bytes are in use", v.size, v.meta.highWater, v.meta.pageSize)
	}
	return nil
}

func (v *verifier) readMeta(offset uint64) (pageMeta, error) {
	buf := make([]byte, pageHeaderSize+metaSize)
	if _, err := v.file.ReadAt(buf, int64(offset)); err != nil {
		if errors.Is(err, io.EOF) {
			return pageMeta{}, errors.New("the file ends before it")
		}
		return pageMeta{}, err
	}
	raw, native := buf[pageHeaderSize:], binary.NativeEndian
	if native.Uint32(raw) != metaMagic {
		return pageMeta{}, errors.New("not a bbolt database")
	}
	sum := fnv.New64a()
	sum.Write(raw[:metaSize-8])
	if sum.Sum64() != native.Uint64(raw[metaSize-8:]) {
		return pageMeta{}, errors.New("fails its checksum")
	}
	if version := native.Uint32(raw[4:]); version != metaVersion {
		return pageMeta{}, fmt.Errorf("has version %d, not %d", version, metaVersion)
	}
	m := pageMeta{
		pageSize:  uint64(native.Uint32(raw[8:])),
		root:      native.Uint64(raw[16:]),
		freelist:  native.Uint64(raw[32:]),
		highWater: native.Uint64(raw[40:]),
		txid:      native.Uint64(raw[48:]),
	}
	if m.pageSize < minPageSize || m.pageSize > maxPageSize {
		return pageMeta{}, fmt.Errorf("names a page size of %d bytes", m.pageSize)
	}
	return m, nil
}

// page is the bytes of one page with its overflow pages.
type page struct {
	id    uint64
	flags uint16
	count uint16
	data  []byte
}

// keyOrder holds the last key of a tree seen so far: keys must rise over the whole tree.
type keyOrder struct{ last []byte }

// readPage reads a page once; a second reference to it is damage, which also ends every cycle.
func (v *verifier) readPage(id uint64) (page, error) {
	if id < 2 || id >= v.meta.highWater {
		return page{}, damage("page %d is out of bounds (2 to %d)", id, v.meta.highWater)
	}
	header := make([]byte, pageHeaderSize)
	if _, err := v.file.ReadAt(header, int64(id*v.meta.pageSize)); err != nil {
		return page{}, damage("page %d cannot be read: %v", id, err)
	}
	native := binary.NativeEndian
	overflow := uint64(native.Uint32(header[12:]))
	if native.Uint64(header) != id || overflow >= v.meta.highWater-id {
		return page{}, damage("page %d has a damaged header", id)
	}
	for n := id; n <= id+overflow; n++ {
		if v.reached[n] {
			return page{}, damage("page %d is referenced twice", n)
		}
		v.reached[n] = true
	}
	data := make([]byte, (overflow+1)*v.meta.pageSize)
	if _, err := v.file.ReadAt(data, int64(id*v.meta.pageSize)); err != nil {
		return page{}, damage("page %d cannot be read: %v", id, err)
	}
	return page{id: id, flags: native.Uint16(header[8:]), count: native.Uint16(header[10:]), data: data}, nil
}

// bounds is the half-open range of keys that a subtree may hold; nil is unbounded.
type bounds struct{ low, high []byte }

func (b bounds) hold(key []byte) bool {
	return (b.low == nil || bytes.Compare(b.low, key) <= 0) && (b.high == nil || bytes.Compare(key, b.high) < 0)
}

// element is one entry of a leaf.
type element struct {
	bucket     bool
	key, value []byte
}

// walk visits every element of a tree in key order. order carries the last key from leaf to leaf.
func (v *verifier) walk(id uint64, within bounds, depth int, order *keyOrder, visit func(element) error) error {
	if depth > maxTreeDepth {
		return damage("page %d lies deeper than any tree of this store", id)
	}
	p, err := v.readPage(id)
	if err != nil {
		return err
	}
	switch p.flags {
	case branchPage:
		return v.walkBranch(p, within, depth, order, visit)
	case leafPage:
		return walkLeaf(p, within, order, visit)
	default:
		return damage("page %d is neither branch nor leaf (flags %#x)", id, p.flags)
	}
}

func (v *verifier) walkBranch(p page, within bounds, depth int, order *keyOrder, visit func(element) error) error {
	if p.count == 0 {
		return damage("branch page %d is empty", p.id)
	}
	native := binary.NativeEndian
	keys, children := make([][]byte, p.count), make([]uint64, p.count)
	for i := range keys {
		at := pageHeaderSize + i*elementSize
		if at+elementSize > len(p.data) {
			return damage("branch page %d counts more elements than fit", p.id)
		}
		raw := p.data[at:]
		children[i] = native.Uint64(raw[8:])
		key, ok := slice(raw, uint64(native.Uint32(raw)), uint64(native.Uint32(raw[4:])))
		if !ok || !within.hold(key) || (i > 0 && bytes.Compare(keys[i-1], key) >= 0) {
			return damage("branch page %d has a damaged or misplaced key at %d", p.id, i)
		}
		keys[i] = key
	}
	for i, child := range children {
		sub := bounds{low: keys[i], high: within.high}
		if i+1 < len(keys) {
			sub.high = keys[i+1]
		}
		if err := v.walk(child, sub, depth+1, order, visit); err != nil {
			return err
		}
	}
	return nil
}

func walkLeaf(p page, within bounds, order *keyOrder, visit func(element) error) error {
	native := binary.NativeEndian
	for i := range int(p.count) {
		at := pageHeaderSize + i*elementSize
		if at+elementSize > len(p.data) {
			return damage("leaf page %d counts more elements than fit", p.id)
		}
		raw := p.data[at:]
		flags, pos := native.Uint32(raw), uint64(native.Uint32(raw[4:]))
		keySize, valueSize := uint64(native.Uint32(raw[8:])), uint64(native.Uint32(raw[12:]))
		key, keyOK := slice(raw, pos, keySize)
		value, valueOK := slice(raw, pos+keySize, valueSize)
		if !keyOK || !valueOK || flags > bucketElement {
			return damage("leaf page %d has a damaged element at %d", p.id, i)
		}
		if !within.hold(key) || (order.last != nil && bytes.Compare(order.last, key) >= 0) {
			return damage("leaf page %d has a misplaced key at %d", p.id, i)
		}
		order.last = key
		if err := visit(element{bucket: flags == bucketElement, key: key, value: value}); err != nil {
			return err
		}
	}
	return nil
}

// slice is b[from:from+size] when that lies within b.
func slice(b []byte, from, size uint64) ([]byte, bool) {
	if from > uint64(len(b)) || size > uint64(len(b))-from {
		return nil, false
	}
	return b[from : from+size], true
}

func (v *verifier) visitRoot(e element) error {
	switch {
	case e.bucket && string(e.key) == recordsBucket:
		v.records = true
		return v.walkBucket(e.value, v.visitRecord)
	case e.bucket && string(e.key) == stateBucket:
		return v.walkBucket(e.value, v.visitState)
	default:
		return damage("unknown entry %q at the top", e.key)
	}
}

// walkBucket visits a bucket's elements, wherever they are: small buckets lie inline in their parent's page.
func (v *verifier) walkBucket(value []byte, visit func(element) error) error {
	if len(value) < bucketHeader {
		return damage("a bucket's header is cut short")
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return v.walk(root, bounds{}, 0, &keyOrder{}, visit)
	}
	inline := value[bucketHeader:]
	if len(inline) < pageHeaderSize {
		return damage("an inline bucket is cut short")
	}
	native := binary.NativeEndian
	p := page{flags: native.Uint16(inline[8:]), count: native.Uint16(inline[10:]), data: inline}
	if p.flags != leafPage {
		return damage("an inline bucket is no leaf (flags %#x)", p.flags)
	}
	return walkLeaf(p, bounds{}, &keyOrder{}, visit)
}

func (v *verifier) visitRecord(e element) error {
	if e.bucket {
		return damage("a bucket %q among the records", e.key)
	}
	revision, _, err := decodeRecord(e.key, e.value)
	if err != nil {
		return err
	}
	v.found.put(e.key, revision)
	v.found.revision = max(v.found.revision, revision)
	return nil
}

func (v *verifier) visitState(e element) error {
	if e.bucket || string(e.key) != stateKey {
		return damage("unknown entry %q beside the state", e.key)
	}
	s, err := decodeState(e.value)
	v.stored, v.hasState = s, true
	return err
}

// checkFreelist demands that each page below the high-water mark is either reached or free, and none both.
func (v *verifier) checkFreelist() error {
	if v.meta.freelist == noFreelist {
		return damage("there is no freelist")
	}
	p, err := v.readPage(v.meta.freelist)
	if err != nil {
		return fmt.Errorf("freelist: %w", err)
	}
	if p.flags != freelistPage {
		return damage("page %d should be the freelist (flags %#x)", p.id, p.flags)
	}
	native := binary.NativeEndian
	ids, count := p.data[pageHeaderSize:], uint64(p.count)
	if count == manyPages {
		count, ids = native.Uint64(ids), ids[8:]
	}
	if count > uint64(len(ids))/8 {
		return damage("the freelist counts more pages than fit")
	}
	free := make(map[uint64]bool, count)
	for i := range count {
		id := native.Uint64(ids[i*8:])
		if id < 2 || id >= v.meta.highWater || free[id] || v.reached[id] {
			return damage("the freelist wrongly names page %d", id)
		}
		free[id] = true
	}
	if missing := v.meta.highWater - uint64(len(v.reached)) - uint64(len(free)); missing != 0 {
		return damage("%d pages are neither in use nor free", missing)
	}
	return nil
}

func (v *verifier) checkState() error {
	switch {
	case !v.hasState || !v.records:
		return damage("the store's buckets are missing")
	case v.found.count != v.stored.count:
		return damage("%d records found, %d expected", v.found.count, v.stored.count)
	case v.found.digest != v.stored.digest:
		return damage("the %d records are not the ones last written", v.found.count)
	case v.found.revision > v.stored.revision:
		return damage("a record has revision %d, but the store is at %d", v.found.revision, v.stored.revision)
	}
	return nil
}
