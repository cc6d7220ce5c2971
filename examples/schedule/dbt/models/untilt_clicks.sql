{{ config(materialized='table') }}

-- Every shown document, clicked or not; positions count from 1.
with shown as (
    select distinct search_id, sku, slot + 1 as position
    from {{ source('shop', 'impressions') }}
),

clicked as (
    select distinct search_id, sku
    from {{ source('shop', 'clicks') }}
)

select
    lower(trim(searches.query)) as query_id,
    shown.search_id as session_id,
    shown.sku as doc_id,
    shown.position,
    case when clicked.sku is null then 0 else 1 end as click,
    searches.variant as ranker,
    searches.searched_at as "timestamp"
from shown
inner join {{ source('shop', 'searches') }} as searches
    on searches.search_id = shown.search_id
left join clicked
    on clicked.search_id = shown.search_id and clicked.sku = shown.sku
where searches.query is not null
